"""RAGPulse's trace: prompts as ids of parts whose lengths stand in five files beside it, in blocks of 64 tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_128_digest

from router.core import Prompt
from router.replay.block_names import ChainNames
from router.replay.core import Trace, TraceRequest
from router.replay.trace_lines import MOST_TOKENS, Line, TraceError, read_lines

BLOCK_TOKENS = 64
MOST_SECONDS = 1e10


class Part(NamedTuple):
    """A part of a prompt: its name in the trace, what its file's name holds, and what its ids are called there."""

    name: str
    file: str
    id_name: str


PARTS = (  # in the order within a prompt
    Part("sys_prompt", "1_sys_prompt", "sys_prompt_id"),
    Part("passages_ids", "2_passages", "passage_id"),
    Part("history", "3_history", "history_id"),
    Part("web_search", "5_web_search", "web_search_id"),
    Part("user_input", "4_user_input", "user_input_id"),
)

Piece = tuple[str, int, int, int]
"""Part, id, first token and how many: what stands in a block."""


def trace_file(folder: Path) -> Path:
    """The trace among the files of a folder; TraceError where there is none or are several."""
    found = sorted(path for path in folder.glob("*trace*.jsonl*") if path.is_file())
    if len(found) != 1:
        there = ", ".join(path.name for path in found) or "none"
        raise TraceError(f"{folder}: a folder is read as RAGPulse's, with one file *trace*.jsonl in it; found: {there}")
    return found[0]


def load_ragpulse(path: Path) -> Trace:
    """The trace file; the parts' lengths are looked for beside it. Times are whole seconds, as they were published."""
    lengths = {part.name: _lengths(path, part) for part in PARTS}
    chains, sessions = ChainNames(), dict[str, int]()
    rows = []
    for line in read_lines(path):
        pieces = list(_pieces(line, lengths))
        tokens = sum(count for *_, count in pieces)
        if not tokens:
            raise line.error("the prompt is empty")
        blocks = chains.follow(b"", _blocks(pieces))
        key_blocks = blocks or [xxh3_128_digest(b"short %d" % line.number)]
        session = sessions.setdefault(str(line.row.get("session_id")), len(sessions))
        prompt = Prompt(tokens, BLOCK_TOKENS, blocks, key_blocks)
        rows.append((line.number_of("timestamp", MOST_SECONDS), line.count_of("output_length"), session, prompt))
    rows.sort(key=lambda row: row[0])
    requests = [
        TraceRequest(number, at_seconds, output_tokens, session, 0.0, prompt)
        for number, (at_seconds, output_tokens, session, prompt) in enumerate(rows)
    ]
    return Trace(path.name.partition(".")[0], BLOCK_TOKENS, requests)


def _lengths(path: Path, part: Part) -> dict[int, int]:
    found = sorted(path.parent.glob(f"*{part.file}.jsonl*"))
    if not found:
        raise TraceError(f"{path}: the lengths of its parts are missing: no *{part.file}.jsonl beside it")
    return {line.count_of(part.id_name): line.count_of("token_length") for line in read_lines(found[0])}


def _pieces(line: Line, lengths: dict[str, dict[int, int]]) -> Iterator[Piece]:
    """The prompt, cut into pieces that lie in one block each."""
    ids = line.row.get("hash_ids")
    if not isinstance(ids, dict) or not all(isinstance(numbers, list) for numbers in ids.values()):
        raise line.error("`hash_ids` must be an object of lists")
    place = 0
    for part in PARTS:
        for number in ids.get(part.name, ()):
            length = lengths[part.name].get(number) if isinstance(number, int) else None
            if length is None:
                raise line.error(f"{part.name} {number!r} has no length in the file *{part.file}.jsonl")
            if place + length > MOST_TOKENS:
                raise line.error(f"the prompt has more than {MOST_TOKENS} tokens")
            first = 0
            while first < length:
                count = min(length - first, BLOCK_TOKENS - place % BLOCK_TOKENS)
                yield part.name, number, first, count
                first += count
                place += count


def _blocks(pieces: list[Piece]) -> Iterator[tuple[Piece, ...]]:
    """The full blocks."""
    block: list[Piece] = []
    tokens = 0
    for piece in pieces:
        block.append(piece)
        tokens += piece[3]
        if tokens == BLOCK_TOKENS:
            yield tuple(block)
            block, tokens = [], 0
