"""Recorded requests as chains of block keys: what a prefix cache sees of them, read from the trace files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from backends.hashing import BlockKey

FOLDERS = (Path(__file__).parent / "data", Path(__file__).parents[1] / "tests" / "data" / "traces")
CLAUDE_SESSIONS = 25
SESSION_SPACING_SECONDS = 30.0
RAGPULSE_PARTS = (  # the true order within a prompt
    ("sys_prompt", "1_sys_prompt", "sys_prompt_id"),
    ("passages_ids", "2_passages", "passage_id"),
    ("history", "3_history", "history_id"),
    ("web_search", "5_web_search", "web_search_id"),
    ("user_input", "4_user_input", "user_input_id"),
)


class Recorded(NamedTuple):
    """A prompt, when it came, and the names of its blocks: equal key = equal prefix up to the block's end."""

    seconds: float
    tokens: int
    keys: list[BlockKey]


class Trace(NamedTuple):
    """Requests in the order of their arrival."""

    block_tokens: int
    requests: list[Recorded]


class Chains:
    """One key for each different beginning, so that equal beginnings have the very same keys."""

    def __init__(self) -> None:
        self.root = BlockKey(b"root", None, b"")
        self._keys: dict[tuple[BlockKey, object], BlockKey] = {}

    def follow(self, contents: Iterator[object]) -> list[BlockKey]:
        """The keys of blocks with these contents, one after the other."""
        keys, parent = [], self.root
        for content in contents:
            key = self._keys.get((parent, content))
            if key is None:
                name = len(self._keys).to_bytes(8, "little")
                key = self._keys[parent, content] = BlockKey(name, parent, name)
            keys.append(key)
            parent = key
        return keys


def rows(name: str) -> Iterator[dict]:
    """The lines of a trace file, from wherever it lies in the checkout."""
    path = next((folder / name for folder in FOLDERS if (folder / name).exists()), None)
    if path is None:
        raise FileNotFoundError(f"no trace {name} in {' or '.join(map(str, FOLDERS))}")
    with gzip.open(path, "rt") as lines:
        yield from map(json.loads, filter(str.strip, lines))


def mooncake(name: str) -> Trace:
    """512-token blocks; a last partial block is listed as a block."""
    chains = Chains()
    requests = []
    for row in rows(f"mooncake_{name}.jsonl.gz"):
        numbers = chain.from_iterable(range(first, first + count) for first, count in row["ranges"])
        requests.append(Recorded(row["t"], row["in"], chains.follow(numbers)))
    return Trace(512, requests)


def ragpulse() -> Trace:
    """64-token blocks over the parts of each prompt, whose texts are known by id and length only."""
    lengths = {part: _lengths(file, name) for part, file, name in RAGPULSE_PARTS}
    chains, requests = Chains(), []
    for row in rows("ragpulse_trace.jsonl.gz"):
        tokens = [
            (part, number, position)
            for part, _, _ in RAGPULSE_PARTS
            for number in row["hash_ids"][part]
            for position in range(lengths[part][number])
        ]
        blocks = (tuple(tokens[start : start + 64]) for start in range(0, len(tokens) - 63, 64))
        requests.append(Recorded(float(row["timestamp"]), len(tokens), chains.follow(blocks)))
    return Trace(64, sorted(requests, key=lambda request: request.seconds))


def _lengths(file: str, name: str) -> dict[int, int]:
    return {row[name]: row["token_length"] for row in rows(f"ragpulse_{file}.jsonl.gz")}


def claude_code() -> Trace:
    """64-token blocks of the first sessions, begun one after the other at a fixed distance (the trace tells none).

    Sessions with equal tools share the tools' blocks, and with an equal system prompt its blocks too.
    """
    chains = Chains()
    calls: list[Recorded] = []
    for number, (head, session) in enumerate(islice(_sessions(), CLAUDE_SESSIONS)):
        tools = head["tool_tokens"] // 64
        system = (head["tool_tokens"] + head["system_tokens"]) // 64
        for row in session:
            numbers = chain.from_iterable(range(first, first + count) for first, count in row["h"])
            contents = (
                (position < tools and head["tool_tokens"])
                or (position < system and (head["tool_tokens"], head["system_tokens"]))
                or (number, content)
                for position, content in enumerate(numbers)
            )
            seconds = number * SESSION_SPACING_SECONDS + row["t"]
            calls.append(Recorded(seconds, row["in"], chains.follow(contents)))
    return Trace(64, sorted(calls, key=lambda call: call.seconds))


def _sessions() -> Iterator[tuple[dict, list[dict]]]:
    head, calls = None, []
    for row in rows("claude_code_sessions.jsonl.gz"):
        if "session" in row:
            if head is not None:
                yield head, calls
            head, calls = row, []
        else:
            calls.append(row)
    if head is not None:
        yield head, calls


TRACES: dict[str, Callable[[], Trace]] = {
    "conversation": lambda: mooncake("conversation"),
    "synthetic": lambda: mooncake("synthetic"),
    "ragpulse": ragpulse,
    "claude_code": claude_code,
}
