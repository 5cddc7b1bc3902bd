"""Served requests, and a trace put through the recording's lines and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.recording.lines import LineWriter, Served
from router.core import Prompt
from router.replay.core import Trace

SALT = bytes(range(32))


def block(*names: int) -> bytes:
    """The raw hash of a block behind these."""
    return bytes([*names, *[255] * 16])[:16]


def build_chain(*names: int) -> list[bytes]:
    """Chained hashes: each depends on all names up to its own."""
    return [block(*names[: place + 1]) for place in range(len(names))]


def build_served(blocks: Sequence[bytes] = (), key_blocks: Sequence[bytes] | None = None, **more: Any) -> Served:
    """A request of tenant `acme` for the model `m`; its prompt is as long as its blocks."""
    key_blocks = key_blocks if key_blocks is not None else list(blocks)
    fields = {
        "at_seconds": 1000.0,
        "tenant": "acme",
        "asked_model": "m",
        "model": "m",
        "prompt": Prompt(64 * len(blocks) + 5, 64, blocks, key_blocks),
        "key": key_blocks[-1],
        "worker": "w1",
        "code": 200,
        "prompt_tokens": 64 * len(blocks) + 5,
        "output_tokens": 7,
        "ttft_seconds": 0.25,
        "total_seconds": 1.5,
        "cached_tokens": 64,
    }
    return Served(**{**fields, **more})


def write_recording(path: Path, served: Sequence[Served], *, sample: float = 1.0, salt: bytes = SALT) -> Path:
    """A recording's file."""
    writer = LineWriter(salt, sample)
    path.write_bytes(writer.head(served[0].at_seconds if served else 0.0) + b"".join(map(writer.line, served)))
    return path


def recorded_trace(trace: Trace, path: Path, **more: Any) -> Path:
    """A trace as a gateway would have recorded it."""
    served = [
        build_served(
            prompt=request.prompt,
            key=request.prompt.key_blocks[0],
            key_blocks=request.prompt.key_blocks,
            at_seconds=1e9 + request.at_seconds,
            prompt_tokens=request.prompt.tokens,
            output_tokens=request.output_tokens,
            cached_tokens=0,
            **more,
        )
        for request in trace.requests
    ]
    return write_recording(path, served)
