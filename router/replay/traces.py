"""Reading a trace whose format is found by what stands in its first line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from router.replay.core import Trace
from router.replay.trace_lines import TraceError, first_line
from router.replay.trace_mooncake import load_published, load_ranges
from router.replay.trace_ragpulse import load_ragpulse, trace_file
from router.replay.trace_recorded import Recording, load_recorded, load_recording
from router.replay.trace_sessions import agents

__all__ = [
    "FORMATS",
    "Recording",
    "TraceError",
    "agents",
    "first_requests",
    "is_recorded",
    "load_recording",
    "load_trace",
]


class Format(NamedTuple):
    """A format of traces: the fields by which its first line is known, and who reads it."""

    name: str
    fields: frozenset[str]
    load: Callable[[Path], Trace]


FORMATS = (
    Format("a recording of the gateway", frozenset({"homing_recording", "sample"}), load_recorded),
    Format("coding-agent sessions", frozenset({"session", "tool_tokens", "system_tokens"}), agents),
    Format("Mooncake, as ranges", frozenset({"t", "in", "out", "ranges"}), load_ranges),
    Format("RAGPulse", frozenset({"timestamp", "output_length", "hash_ids", "session_id"}), load_ragpulse),
    Format(
        "Mooncake, as published", frozenset({"timestamp", "input_length", "output_length", "hash_ids"}), load_published
    ),
)


def load_trace(path: Path | str) -> Trace:
    """The trace in a file, or RAGPulse's in a folder; gzipped or not.

    TraceError names the file, the line where there is one, and what is wrong.
    """
    path = Path(path)
    if os.path.isdir(path):  # it does not raise where a folder may not be entered
        path = trace_file(path)
    return _from_its_start(format_of(path).load(path))


def _from_its_start(trace: Trace) -> Trace:
    """Times that count from elsewhere, as Unix time does, are taken from the first request: the pace depends on it."""
    first, last = trace.requests[0].at_seconds, trace.requests[-1].at_seconds
    if first <= last - first:
        return trace
    requests = [request._replace(at_seconds=request.at_seconds - first) for request in trace.requests]
    return Trace(trace.name, trace.block_tokens, requests, trace.closed_loop)


def is_recorded(path: Path) -> bool:
    """Whether the file there is a recording of the gateway; TraceError for one of no known format."""
    return not os.path.isdir(path) and format_of(path).load is load_recorded


def format_of(path: Path) -> Format:
    """The format of a file, by its first line."""
    line = first_line(path)
    for each in FORMATS:
        if each.fields <= line.row.keys():
            return each
    known = "; ".join(f"{each.name} ({', '.join(sorted(each.fields))})" for each in FORMATS)
    raise line.error(f"the format is not known by its fields {', '.join(map(str, line.row))}; known are: {known}")


def first_requests(trace: Trace, limit: int) -> Trace:
    """The trace cut off after its first `limit` requests."""
    return Trace(trace.name, trace.block_tokens, trace.requests[:limit], trace.closed_loop)
