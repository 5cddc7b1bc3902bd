"""The gateway's own recordings: a head line, then a line per request; docs/replay.md describes the fields.

A line lists the blocks that follow the longest beginning that the file already had, named by its last block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_128_digest

from router.core import Prompt
from router.replay.core import Trace, TraceRequest
from router.replay.trace_lines import Line, TraceError, read_lines

FORMAT_VERSION = 1
MOST_SECONDS = 1e11
MOST_BLOCK_TOKENS = 10**6


class Reported(NamedTuple):
    """What really became of a request; what its worker did not say is None."""

    worker: str
    code: int
    ttft_seconds: float | None
    total_seconds: float
    cached_tokens: int | None


class Recording(NamedTuple):
    """A recorded trace, and by request number what became of it.

    `sample` is the share of the traffic that was recorded, `at_seconds` the Unix time of the first request. A
    request's `session` is that of the latest request whose whole prompt it begins with.
    """

    trace: Trace
    reported: Sequence[Reported]
    model: str
    sample: float
    at_seconds: float


class _Row(NamedTuple):
    at_seconds: float
    model: str
    output_tokens: int
    prompt: Prompt
    reported: Reported


def load_recording(path: Path, model: str | None = None, *, closed_loop: bool = False) -> Recording:
    """One model's requests of a recording; `model` may be left out where there is one.

    Requests come at the recorded times. In a closed loop only each session's first does, and the others as long after
    the answer before as they did. TraceError for what cannot be read, and for a model that is to be named.
    """
    sample, rows = _read(path)
    counts = Counter(row.model for row in rows)
    if model is None and len(counts) == 1:
        model = next(iter(counts))
    if model is None or model not in counts:
        wanted = "name one of its models" if model is None else f"it holds no request for {model!r}"
        there = ", ".join(f"{name} ({count} requests)" for name, count in counts.most_common()) or "no request at all"
        raise TraceError(f"{path}: {wanted}; there is {there}")
    chosen = sorted((row for row in rows if row.model == model), key=lambda row: row.at_seconds)
    start = chosen[0].at_seconds
    sessions, ended_at = _Sessions(), dict[int, float]()
    requests = []
    for number, row in enumerate(chosen):
        session = sessions.of(row.prompt)
        think_seconds = max(0.0, row.at_seconds - ended_at.get(session, row.at_seconds)) if closed_loop else 0.0
        ended_at[session] = row.at_seconds + row.reported.total_seconds
        requests.append(
            TraceRequest(number, row.at_seconds - start, row.output_tokens, session, think_seconds, row.prompt)
        )
    block_tokens = Counter(row.prompt.block_tokens for row in chosen).most_common(1)[0][0]
    trace = Trace(path.name.partition(".")[0], block_tokens, requests, closed_loop)
    return Recording(trace, [row.reported for row in chosen], model, sample, start)


def load_recorded(path: Path) -> Trace:
    """The trace of a recording that holds one model."""
    return load_recording(path).trace


def _read(path: Path) -> tuple[float, list[_Row]]:
    sample, chains, rows = 1.0, _Chains(), []
    for line in read_lines(path, may_be_cut=True):
        if "homing_recording" in line.row:
            if line.count_of("homing_recording") != FORMAT_VERSION:
                raise line.error(f"only recordings of version {FORMAT_VERSION} can be read")
            sample = line.number_of("sample", 1.0)
            if not sample:
                raise line.error("`sample` is 0, it is the share of the traffic that was recorded")
        else:
            rows.append(_row(line, chains))
    return sample, rows


def _row(line: Line, chains: _Chains) -> _Row:
    exact = chains.read(line, "after", "exact")
    key = chains.read(line, "key_after", "key") if "key" in line.row else exact
    tokens = max(1, line.count_of("tokens"))
    block_tokens = line.count_of("block_tokens", MOST_BLOCK_TOKENS)
    if not key or not block_tokens:
        raise line.error("`key` is empty" if block_tokens else "`block_tokens` is 0")
    reported = Reported(
        str(line.row.get("worker")),
        line.count_of("code"),
        _optional(line, "ttft"),
        line.number_of("total"),
        _optional_count(line, "cached"),
    )
    return _Row(
        line.number_of("at", MOST_SECONDS),
        str(line.row.get("model")),
        _optional_count(line, "output") or 0,
        Prompt(tokens, block_tokens, exact, key),
        reported,
    )


def _optional(line: Line, name: str) -> float | None:
    return None if line.row.get(name) is None else line.number_of(name)


def _optional_count(line: Line, name: str) -> int | None:
    return None if line.row.get(name) is None else line.count_of(name)


class _Chains:
    """The chains of a file so far: for each block one that it stands in, and where."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[list[bytes], int]] = {}

    def read(self, line: Line, after_name: str, rest_name: str) -> list[bytes]:
        """A line's chain: the beginning that it names, and what it lists."""
        after, rest = line.row.get(after_name), line.list_of(rest_name)
        if not all(isinstance(block, str) and block for block in rest):
            raise line.error(f"`{rest_name}` must be a list of block hashes")
        if not after:
            blocks: list[bytes] = []
        elif isinstance(after, str) and after in self._places:
            known, place = self._places[after]
            blocks = known[: place + 1]
        else:
            raise line.error(f"`{after_name}` names no block that stands in a line before: lines are missing")
        start = len(blocks)
        blocks += [self._name(block) for block in rest]
        for place, block in enumerate(rest, start):
            self._places[block] = blocks, place
        return blocks

    def _name(self, block: str) -> bytes:
        """The same object for the same block."""
        known = self._places.get(block)
        return known[0][known[1]] if known is not None else xxh3_128_digest(block.encode())


class _Sessions:
    """Conversations told by their prompts: who begins with another's whole prompt goes on with it."""

    def __init__(self) -> None:
        self._by_last_block: dict[bytes, int] = {}
        self._count = 0

    def of(self, prompt: Prompt) -> int:
        """The number of a prompt's session."""
        ends: Mapping[bytes, int] = self._by_last_block
        session = next((ends[block] for block in reversed(prompt.exact_blocks) if block in ends), None)
        if session is None:
            session, self._count = self._count, self._count + 1
        if prompt.exact_blocks:
            self._by_last_block[prompt.exact_blocks[-1]] = session
        return session
