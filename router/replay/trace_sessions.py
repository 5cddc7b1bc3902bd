"""Coding-agent sessions (kv-cache-tester's format): a header line per session, then its calls; replayed closed-loop.

Block ids are local to a session. That sessions with equal tools share the tools' blocks, and with an equal system
prompt its blocks too, is a model, and so are the times at which sessions start: the data tell neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import NamedTuple

from xxhash import xxh3_128_digest

from router.core import Prompt
from router.replay.block_names import ChainNames
from router.replay.core import Trace, TraceRequest
from router.replay.trace_lines import MOST_TOKENS, Line, TraceError, read_lines

BLOCK_TOKENS = 64
"""What the file's ids count."""

NOMINAL_FIXED_SECONDS = 2.0
NOMINAL_SECONDS_PER_TOKEN = 0.02
"""What serving the call before is taken to have lasted, where thinking time is told apart from it."""

LEAST_THINK_SECONDS = 0.5
MOST_THINK_SECONDS = 600.0

_MOST_SESSION_SECONDS = 1e9
_MOST_RANGES_BLOCKS = MOST_TOKENS // BLOCK_TOKENS

Ranges = tuple[tuple[int, int], ...]


class _Call(NamedTuple):
    """One call as the file has it; `sub` tells a sub-agent's, whose prompt shares nothing with other sessions."""

    at_seconds: float
    tokens: int
    output_tokens: int
    ranges: Ranges
    sub: bool


class _Session(NamedTuple):
    tool_tokens: int
    system_tokens: int
    calls: list[_Call]

    @property
    def identity(self) -> tuple[tuple[float, int, int, Ranges], ...]:
        """What two recordings of one session have in common."""
        return tuple(call[:4] for call in self.calls)


def agents(
    path: Path,
    *,
    coarse: int = 8,
    window_seconds: float = 3600.0,
    most_tokens: int = 200_000,
    seed: int = 3,
    start_span_seconds: float = 3600.0,
) -> Trace:
    """The sessions of a file, each begun at a random time within `start_span_seconds`, calls in order of their times.

    `coarse` blocks of 64 tokens make one block of the trace; what is left over at a prompt's end is none. Calls later
    than `window_seconds` into their session or longer than `most_tokens` are left out. A session that is there twice
    counts once. TraceError names what cannot be read.
    """
    random, names = Random(seed), _Names(coarse)  # noqa: S311 - times to replay, no secret
    calls: list[tuple[float, int, _Call, list[bytes]]] = []
    for number, session in enumerate(_distinct(_sessions(path))):
        start_seconds = random.random() * start_span_seconds
        session_names = names.of(number, session)
        calls += [
            (start_seconds + call.at_seconds, number, call, session_names.blocks(call))
            for call in session.calls
            if call.at_seconds <= window_seconds and call.tokens <= most_tokens
        ]
    if not calls:
        raise TraceError(f"{path}: no call is within {window_seconds:g} s and {most_tokens} tokens")
    # Sessions come one after the other, so the order of equal times is theirs.
    calls.sort(key=lambda call: call[0])
    return Trace(path.name.partition(".")[0], coarse * BLOCK_TOKENS, _requests(calls, coarse), closed_loop=True)


def _requests(calls: list[tuple[float, int, _Call, list[bytes]]], coarse: int) -> list[TraceRequest]:
    requests: list[TraceRequest] = []
    last: dict[int, tuple[float, int]] = {}
    for number, (at_seconds, session, call, blocks) in enumerate(calls):
        think_seconds = _think_seconds(at_seconds, *last[session]) if session in last else 0.0
        last[session] = at_seconds, call.output_tokens
        # A prompt shorter than a block still has a key of its own: there is nothing that it could share.
        key_blocks = blocks or [xxh3_128_digest(b"short %d" % number)]
        prompt = Prompt(call.tokens, coarse * BLOCK_TOKENS, blocks, key_blocks)
        requests.append(TraceRequest(number, at_seconds, call.output_tokens, session, think_seconds, prompt))
    return requests


def _think_seconds(at_seconds: float, before_seconds: float, output_tokens: int) -> float:
    """Between the answer before, served at a nominal pace, and this call."""
    served_seconds = NOMINAL_FIXED_SECONDS + NOMINAL_SECONDS_PER_TOKEN * output_tokens
    pause_seconds = at_seconds - before_seconds - served_seconds
    return round(min(MOST_THINK_SECONDS, max(LEAST_THINK_SECONDS, pause_seconds)), 2)


class _Names:
    """Names of coarse blocks over all sessions."""

    def __init__(self, coarse: int) -> None:
        self.coarse = coarse
        self.chains = ChainNames()
        self._spaces: dict[tuple[object, ...], int] = {}

    def of(self, number: int, session: _Session) -> _SessionNames:
        """The names of one session's calls."""
        tools, system = session.tool_tokens, session.system_tokens
        return _SessionNames(
            self,
            tool_blocks=tools // BLOCK_TOKENS,
            system_blocks=(tools + system) // BLOCK_TOKENS,
            tool_space=self._space("tools", tools),
            system_space=self._space("system", tools, system),
            own_space=self._space("session", number),
        )

    def _space(self, *what: object) -> int:
        """A range of block numbers of its own, for blocks that are equal wherever `what` is."""
        return self._spaces.setdefault(what, len(self._spaces)) << 64


@dataclass(slots=True)
class _SessionNames:
    """Names of one session's blocks. Calls repeat what the call before had, so that beginning is not named again."""

    names: _Names
    tool_blocks: int
    system_blocks: int
    tool_space: int
    system_space: int
    own_space: int
    # By `sub`: the contents of the last call, and the names of its coarse blocks.
    last: dict[bool, tuple[list[int], list[bytes]]] = field(default_factory=dict)

    def blocks(self, call: _Call) -> list[bytes]:
        """The names of a call's full coarse blocks."""
        contents = list(chain.from_iterable(range(first, first + count) for first, count in call.ranges))
        before, named = self.last.get(call.sub, ([], []))
        coarse = self.names.coarse
        kept = min(_common(before, contents) // coarse, len(named))
        rest = self._in_spaces(contents, kept * coarse, shares=not call.sub)
        chunks = zip(*[iter(rest)] * coarse, strict=False)
        parent = named[kept - 1] if kept else b""
        blocks = named[:kept] + self.names.chains.follow(parent, chunks)
        self.last[call.sub] = contents, blocks
        return blocks

    def _in_spaces(self, contents: list[int], start: int, *, shares: bool) -> list[int]:
        """Numbers from `start` on, made equal over sessions where the blocks are. An untouched shared beginning has
        the ids 1, 2, 3, …; whatever else stands there is the session's own."""
        shared = self.system_blocks if shares else start
        head = [
            (self.tool_space if place < self.tool_blocks else self.system_space) + number
            if number == place + 1
            else self.own_space + number
            for place, number in enumerate(contents[start:shared], start)
        ]
        return head + [self.own_space + number for number in contents[max(start, shared) :]]


def _common(one: list[int], other: list[int]) -> int:
    """How many numbers at their beginnings are equal; found by halving, comparing slices."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _distinct(sessions: Iterator[_Session]) -> Iterator[_Session]:
    seen = set()
    for session in sessions:
        if session.identity not in seen:
            seen.add(session.identity)
            yield session


def _sessions(path: Path) -> Iterator[_Session]:
    session: _Session | None = None
    for line in read_lines(path):
        if "session" in line.row:
            if session is not None:
                yield session
            session = _Session(line.count_of("tool_tokens"), line.count_of("system_tokens"), [])
        elif session is None:
            raise line.error("a call stands before the first session's header")
        else:
            session.calls.append(_call(line))
    if session is not None:
        yield session


def _call(line: Line) -> _Call:
    pairs = line.list_of("h")
    try:
        ranges = tuple((int(first), int(count)) for first, count in pairs)
    except (TypeError, ValueError, OverflowError):
        raise line.error("`h` must be a list of [first id, count]") from None
    if sum(count for _, count in ranges) > _MOST_RANGES_BLOCKS or any(count < 0 for _, count in ranges):
        raise line.error("`h` lists more blocks than a prompt can have")
    at_seconds = line.number_of("t", _MOST_SESSION_SECONDS)
    return _Call(at_seconds, line.count_of("in"), line.count_of("out"), ranges, bool(line.row.get("a")))
