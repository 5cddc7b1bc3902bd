"""Small traces, written as files, and a cache that says what a trace can hit."""

from __future__ import annotations

import gzip
import json
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from router.replay.core import Trace
from router.replay.trace_ragpulse import PARTS
from router.replay.traces import load_trace

ROOT = Path(__file__).parents[3]
CONVERSATION = ROOT / "bench" / "data" / "mooncake_conversation.jsonl.gz"
SYNTHETIC = ROOT / "tests" / "data" / "traces" / "mooncake_synthetic.jsonl.gz"
CLAUDE_CODE = ROOT / "bench" / "data" / "claude_code_sessions.jsonl.gz"
RAGPULSE = ROOT / "bench" / "data" / "ragpulse_trace.jsonl.gz"


@cache
def published_trace(path: Path) -> Trace:
    """A published trace, read once for all tests of a process; nobody changes it."""
    return load_trace(path)


def write_rows(path: Path, rows: Sequence[Any]) -> Path:
    """JSON lines; gzipped where the name says so."""
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def range_row(at_seconds: float = 0.0, ranges: Sequence[Sequence[int]] = ((0, 2),), **more: Any) -> dict[str, Any]:
    """One request of Mooncake's form with ranges; its length fits its blocks."""
    return {"t": at_seconds, "in": 512 * sum(count for _, count in ranges), "out": 5, "ranges": ranges, **more}


def session_rows(name: str, *calls: tuple[float, Any], tools: int = 0, system: int = 0, **more: Any) -> list[Any]:
    """A session of calls, each (seconds, ranges); ten tokens of answer each."""
    head = {"session": name, "tool_tokens": tools, "system_tokens": system, "block_size": 64, "n": len(calls)}
    rows = [
        {"t": seconds, "in": 64 * sum(count for _, count in ranges), "out": 10, "h": ranges, "a": "", **more}
        for seconds, ranges in calls
    ]
    return [head, *rows]


def write_ragpulse(folder: Path, rows: Sequence[dict[str, Any]], lengths: dict[str, dict[int, int]]) -> Path:
    """A trace of RAGPulse with the files of its parts beside it."""
    for part in PARTS:
        known = lengths.get(part.name, {})
        rows_of_part = [{part.id_name: number, "token_length": length} for number, length in known.items()]
        write_rows(folder / f"ragpulse_{part.file}.jsonl", rows_of_part)
    return write_rows(folder / "ragpulse_trace.jsonl", rows)


def distinct_blocks(trace: Trace) -> int:
    """Different blocks in a trace."""
    return len(set().union(*(request.prompt.exact_blocks for request in trace.requests)))


def shared_cache_hit_rate(trace: Trace, cache_blocks: int | None = None) -> float:
    """Share of the prompt tokens that one LRU for all requests would hit; None: without a bound."""
    held: OrderedDict[bytes, None] = OrderedDict()
    cached_tokens = 0
    for request in trace.requests:
        prompt, found = request.prompt, 0
        for block in prompt.exact_blocks:
            if block not in held:
                break
            found += 1
        cached_tokens += min(found * prompt.block_tokens, prompt.tokens - 1)
        for block in reversed(prompt.exact_blocks):
            held[block] = None
            held.move_to_end(block)
        while cache_blocks is not None and len(held) > cache_blocks:
            held.popitem(last=False)
    return cached_tokens / sum(request.prompt.tokens for request in trace.requests)
