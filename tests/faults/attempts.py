"""What the workers' logs say: when each attempt at a request ran, and how long two of them ran at once."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """One attempt at a worker, on the machine's monotonic clock; `why` it ended is None while it has not, and `ended`
    is infinite then."""

    nonce: str
    worker: str
    began: float
    ended: float
    why: str | None
    salt: str | None


def attempts_of(lines: Iterable[dict[str, Any]], worker: str = "") -> list[Ran]:
    """The attempts in one worker's log. A kill ends all of them, and so does a freeze: a stopped process makes
    nothing, and its kernel holds what the gateway's close says until it wakes. Who kills notes the moment before the
    signal: the kernel tells the gateway of a death sooner than whoever waits for it."""
    open_, ran = {}, []
    for line in lines:
        if "begin" in line:
            open_[line["begin"]] = line
        elif "end" in line and (begun := open_.pop(line["end"], None)):
            ran.append(_ran(begun, worker, line["t"], line["why"]))
        elif "died" in line or "frozen" in line:
            ran += [_ran(begun, worker, max(begun["t"], line["t"]), "died") for begun in open_.values()]
            open_.clear()
    return ran + [_ran(begun, worker, math.inf, None) for begun in open_.values()]


def _ran(begun: dict[str, Any], worker: str, ended: float, why: str | None) -> Ran:
    return Ran(begun["nonce"], worker, begun["t"], ended, why, begun["salt"])


def read_attempts(directory: Path) -> list[Ran]:
    """Everything that every worker below a directory was asked."""
    found: list[Ran] = []
    for path in sorted(directory.rglob("*.attempts")):
        found += attempts_of(map(json.loads, path.read_text().splitlines()), path.stem)
    return found


def by_nonce(attempts: Iterable[Ran]) -> dict[str, list[Ran]]:
    """The attempts at each request, in the order they began."""
    grouped: dict[str, list[Ran]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda each: each.began):
        grouped[attempt.nonce].append(attempt)
    return grouped


def overlaps(attempts: Iterable[Ran]) -> list[float]:
    """For how many seconds two attempts at the same request were alive at once, for each such pair."""
    found = []
    for tries in by_nonce(attempts).values():
        for number, later in enumerate(tries):
            found += [min(each.ended, later.ended) - later.began for each in tries[:number]]
    return [seconds for seconds in found if seconds > 0]
