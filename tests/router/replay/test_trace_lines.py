"""Lines of files that were never meant to be traces: read no further than a trace could go."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.replay import trace_lines
from router.replay.traces import TraceError, load_trace
from tests.router.replay.trace_builders import range_row, write_rows


def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """A device, a disk image: memory is not filled with it."""
    monkeypatch.setattr(trace_lines, "MOST_LINE_BYTES", 2**16)
    with pytest.raises(TraceError, match="/dev/zero, line 1: it is longer than 65536 bytes"):
        load_trace("/dev/zero")


def test_ranges_that_cancel_out_are_not_expanded(tmp_path: Path):
    """A negative count takes nothing off what the others would fill memory with."""
    path = write_rows(tmp_path / "t", [range_row(0.0, [[0, -(10**12)], [0, 10**12], [0, 2]])])
    with pytest.raises(TraceError, match="line 1: `ranges` lists more blocks than a prompt can have"):
        load_trace(path)
