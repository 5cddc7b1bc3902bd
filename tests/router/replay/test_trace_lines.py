"""Lines of files that were never meant to be traces: read no further than a trace could go."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from router.replay import trace_lines
from router.replay.traces import TraceError, load_trace
from tests.router.replay.trace_builders import range_row, session_rows, write_ragpulse, write_rows


def test_a_line_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk image: memory is not filled with it."""
    monkeypatch.setattr(trace_lines, "MOST_LINE_BYTES", 2**16)
    path = tmp_path / "image"
    path.write_bytes(gzip.compress(bytes(2**20)))
    with pytest.raises(TraceError, match="image, line 1: it is longer than 65536 bytes"):
        load_trace(path)


def test_a_pipe_and_a_device_are_no_traces(tmp_path: Path):
    """Nobody waits for what never comes, or comes once."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(TraceError, match=f"{path}: this is no file"):
            load_trace(path)


@pytest.mark.parametrize(
    ("parts", "said"), [([], "line 1: the prompt is empty"), ([1, 2], "line 1: the prompt has more than 100000000")]
)
def test_a_prompt_has_tokens_and_not_too_many(tmp_path: Path, parts: list[int], said: str):
    """RAGPulse's are as long as another file says."""
    row = {"timestamp": 0, "output_length": 1, "session_id": "s", "hash_ids": {"sys_prompt": parts}}
    with pytest.raises(TraceError, match=said):
        load_trace(write_ragpulse(tmp_path, [row], {"sys_prompt": {1: 64, 2: 10**8}}))


def test_unix_times_count_from_the_first_request(tmp_path: Path):
    """Its pace is that of its requests, not of the years before them."""
    late = load_trace(write_rows(tmp_path / "late", [range_row(1.7e9 + number) for number in range(5)]))
    early = load_trace(write_rows(tmp_path / "early", [range_row(float(number)) for number in range(5)]))
    assert late.requests == early.requests


def test_ranges_that_cancel_out_are_not_expanded(tmp_path: Path):
    """A negative count takes nothing off what the others would fill memory with."""
    path = write_rows(tmp_path / "t", [range_row(0.0, [[0, -(10**12)], [0, 10**12], [0, 2]])])
    with pytest.raises(TraceError, match="line 1: `ranges` lists more blocks than a prompt can have"):
        load_trace(path)


def test_a_pause_is_no_bin(tmp_path: Path):
    """What stands at one published time came within five seconds of it, however long nothing came after."""
    rows = [
        {"timestamp": at_ms, "input_length": 512, "output_length": 1, "hash_ids": [at_ms]} for at_ms in (0, 0, 60_000)
    ]
    trace = load_trace(write_rows(tmp_path / "t", rows))
    assert [request.at_seconds for request in trace.requests] == [0, 2.5, 60]


def test_a_session_that_is_there_twice_counts_once(tmp_path: Path):
    """Copies of one recording would share everything; sessions that differ in a call are two."""
    calls = (0, [[1, 16]]), (10, [[1, 24]])
    rows = [*session_rows("a", *calls), *session_rows("b", *calls), *session_rows("c", *calls[:1])]
    assert len({request.session for request in load_trace(write_rows(tmp_path / "t", rows)).requests}) == 2
