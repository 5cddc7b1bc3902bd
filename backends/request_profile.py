"""How long prompts are and how much of each an earlier one had: recorded as lengths only, to choose block sizes by."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from backends.hashing import TOKEN_BYTES

logger = logging.getLogger("homing.worker")

GRAIN_TOKENS = 8
"""Reuse is told in multiples of this, the smallest block size there is a choice of."""

MOST_REQUESTS = 20_000
"""Then the record is complete: at most 1 MB on disk."""

MOST_BEGINNINGS = 200_000
"""Beginnings of prompts that are remembered, 1.6 million tokens of different text; the longest unused go first."""

HEADER = {"homing_request_profile": 1, "grain_tokens": GRAIN_TOKENS}


class ProfileError(ValueError):
    """A file is no request profile; the message says which line and why."""


class ProfiledRequest(NamedTuple):
    """One request, in tokens: its prompt, and the beginning of it that an earlier prompt had too."""

    prompt_tokens: int
    reused_tokens: int


class Beginnings:
    """Which beginnings of prompts have been seen, as 64-bit hashes that differ from process to process."""

    def __init__(self, most: int = MOST_BEGINNINGS) -> None:
        self._seen: dict[int, None] = {}
        self._most = most

    def add(self, root: bytes, packed: bytes) -> int:
        """Remember a prompt, packed, under `root`, its salt and adapter; how many of its first tokens were known."""
        seen, step = self._seen, GRAIN_TOKENS * TOKEN_BYTES
        name, reused, known = hash(root), 0, True
        for end in range(step, len(packed) + 1, step):
            name = hash((name, packed[end - step : end]))
            known = known and name in seen
            reused += known
            seen.pop(name, None)
            seen[name] = None  # the last used is last
        while len(seen) > self._most:
            del seen[next(iter(seen))]
        return reused * GRAIN_TOKENS


class RequestRecorder:
    """Writes the profile, a line a request, anew from the start of the worker. Never disturbs serving."""

    def __init__(self, path: Path) -> None:
        """OSError when the file cannot be written."""
        self._beginnings = Beginnings()
        self._left = MOST_REQUESTS
        self._file: IO[str] | None = path.open("w", buffering=1, encoding="ascii")
        self._write(HEADER)

    def record(self, root: bytes, packed: bytes) -> None:
        """A request was admitted for the first time."""
        if self._file is None:
            return
        reused = self._beginnings.add(root, packed)
        self._write(ProfiledRequest(len(packed) // TOKEN_BYTES, reused)._asdict())
        self._left -= 1
        if not self._left:
            logger.info("The request profile is complete: %d requests", MOST_REQUESTS)
            self.close()

    def _write(self, line: dict[str, int]) -> None:
        if self._file is not None:
            try:
                self._file.write(json.dumps(line) + "\n")
            except OSError as error:
                logger.warning("The request profile ends here: %s", error)
                self._file = None

    def close(self) -> None:
        """Record no more."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_profile(path: Path) -> list[ProfiledRequest]:
    """All requests of a profile; ProfileError when it is none, or empty, OSError when it cannot be read."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        requests = list(_requests(path, lines))
    if not requests:
        raise ProfileError(f"{path} has no requests: record some with --record-request-profile")
    return requests


def _requests(path: Path, lines: Iterator[str]) -> Iterator[ProfiledRequest]:
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        if number > MOST_REQUESTS + 1:
            raise ProfileError(f"{place}: longer than any recorded profile")
        try:
            row = json.loads(line)
        except ValueError:
            raise ProfileError(f"{place}: no JSON") from None
        if number == 1:
            if row != HEADER:
                raise ProfileError(f"{place}: no request profile of this version; it would begin {json.dumps(HEADER)}")
        else:
            yield _request(place, row)


def _request(place: str, row: object) -> ProfiledRequest:
    if not isinstance(row, dict) or set(row) != set(ProfiledRequest._fields):
        raise ProfileError(f"{place}: not exactly the fields {', '.join(ProfiledRequest._fields)}")
    request = ProfiledRequest(**row)
    if any(type(value) is not int for value in request) or not 0 <= request.reused_tokens <= request.prompt_tokens:
        raise ProfileError(f"{place}: lengths in tokens, none below 0, and no more reused than there are")
    return request
