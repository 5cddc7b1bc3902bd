"""Reading recordings: sessions, models, what was reported, and lines that cannot be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from router.replay.traces import TraceError, is_recorded, load_recording, load_trace
from tests.router.replay.trace_builders import CONVERSATION, write_rows

HEAD = {"homing_recording": 1, "at": 0.0, "sample": 1.0}


def row(at_seconds: float = 0.0, after: str = "", exact: tuple[str, ...] = ("a",), **more: Any) -> dict[str, Any]:
    fields = {
        "at": at_seconds, "model": "m", "worker": "w1", "code": 200, "tokens": 64 * len(exact) + 9, "output": 3,
        "ttft": 0.5, "total": 2.0, "cached": 0, "block_tokens": 64, "after": after, "exact": list(exact),
    }  # fmt: skip
    return {**fields, **more}


def test_chains_are_put_together_from_what_lines_list(tmp_path: Path):
    """A beginning may end in the middle of what an earlier line listed."""
    rows = [HEAD, row(5, "", ("a", "b", "c")), row(6, "b", ("d",)), row(7, "d", ()), row(8, "", ("x",))]
    chains = [one.prompt.exact_blocks for one in load_trace(write_rows(tmp_path / "r", rows)).requests]
    assert [len(chain) for chain in chains] == [3, 3, 3, 1]
    assert chains[1][:2] == chains[0][:2]
    assert chains[2] == chains[1]
    assert chains[1][1] is chains[0][1]


def test_times_begin_with_the_first_request_and_are_put_in_order(tmp_path: Path):
    """Lines come as requests end."""
    recording = load_recording(write_rows(tmp_path / "r", [HEAD, row(107.5), row(100.0, "a", ()), row(103.0, "a", ())]))
    assert [one.at_seconds for one in recording.trace.requests] == [0.0, 3.0, 7.5]
    assert (recording.at_seconds, recording.trace.closed_loop) == (100.0, False)
    assert is_recorded(tmp_path / "r")
    assert not is_recorded(CONVERSATION)


def test_what_workers_did_not_say_is_none(tmp_path: Path):
    """Not 0: nothing is known."""
    recording = load_recording(write_rows(tmp_path / "r", [HEAD, row(output=None, ttft=None, cached=None, code=499)]))
    assert recording.reported == [("w1", 499, None, 2.0, None)]
    assert recording.trace.requests[0].output_tokens == 0


def test_who_goes_on_with_a_prompt_is_of_its_session(tmp_path: Path):
    """A common beginning alone makes no session."""
    rows = [
        HEAD,
        row(0, "", ("sys", "a")),
        row(1, "sys", ("b",)),
        row(2, "a", ("c",)),
        row(3, "b", ("d",)),
        row(4, "c", ("e",)),
        row(5, "sys", ("f",)),
    ]
    trace = load_trace(write_rows(tmp_path / "r", rows))
    assert [one.session for one in trace.requests] == [0, 1, 0, 1, 0, 2]


def test_in_a_closed_loop_a_session_thinks_as_long_as_it_did(tmp_path: Path):
    """From the end of the answer before; who asked before that thinks not at all."""
    rows = [HEAD, row(0, total=4.0), row(1, "", ("b",)), row(10, "a", ("c",)), row(11, "c", ("d",))]
    path = write_rows(tmp_path / "r", rows)
    trace = load_recording(path, closed_loop=True).trace
    assert [(one.session, one.think_seconds) for one in trace.requests] == [(0, 0.0), (1, 0.0), (0, 6.0), (0, 0.0)]
    assert trace.closed_loop
    assert {one.think_seconds for one in load_trace(path).requests} == {0.0}


def test_one_model_is_replayed_at_a_time(tmp_path: Path):
    """Their workers are others."""
    path = write_rows(tmp_path / "r", [HEAD, row(0), row(1, "a", ()), row(2, "", ("z",), model="n", block_tokens=16)])
    with pytest.raises(TraceError, match=r"name one of its models; there is m \(2 requests\), n \(1 requests\)"):
        load_trace(path)
    with pytest.raises(TraceError, match="it holds no request for 'o'"):
        load_recording(path, "o")
    assert [len(load_recording(path, name).trace.requests) for name in "mn"] == [2, 1]
    assert load_recording(path, "n").trace.block_tokens == 16


def test_a_key_chain_of_its_own_is_read_beside_the_exact_one(tmp_path: Path):
    """They may begin alike."""
    path = write_rows(tmp_path / "r", [HEAD, row(0, "", ("a",), key_after="a", key=["tail"]), row(1, "a", ())])
    one, other = (request.prompt for request in load_trace(path).requests)
    assert one.key_blocks[:1] == one.exact_blocks
    assert len(one.key_blocks) == 2
    assert other.key_blocks is other.exact_blocks


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([HEAD], "name one of its models; there is no request at all"),
        ([{**HEAD, "homing_recording": 2}], "line 1: only recordings of version 1 can be read"),
        ([{**HEAD, "sample": 3}], "line 1: `sample` is 3"),
        ([{**HEAD, "sample": 0}], "line 1: `sample` is 0"),
        ([HEAD, row(after="lost")], "line 2: `after` names no block that stands in a line before: lines are missing"),
        ([HEAD, row(after=7)], "line 2: `after` names no block"),
        ([HEAD, row(exact=("a", ""))], "line 2: `exact` must be a list of block hashes"),
        ([HEAD, row(exact=())], "line 2: `key` is empty"),
        ([HEAD, row(exact="a", key=7)], "line 2: `key` is no list"),
        ([HEAD, row(block_tokens=0)], "line 2: `block_tokens` is 0"),
        ([HEAD, row(tokens="x")], "line 2: `tokens` is no number"),
        ([HEAD, row(cached=-1)], "line 2: `cached` is -1"),
        ([HEAD, {"at": 1}], "line 2: `exact` is missing"),
    ],
)
def test_a_wrong_recording_says_where_and_what(tmp_path: Path, rows: list[Any], said: str):
    """The line and the field."""
    with pytest.raises(TraceError, match=said):
        load_trace(write_rows(tmp_path / "r", rows))
