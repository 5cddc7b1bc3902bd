"""Traces: the published ones give known sums and known hit rates; wrong ones say where and what."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from router.replay.trace_sessions import _common
from router.replay.traces import FORMATS, TraceError, agents, first_requests, load_trace
from tests.router.replay.trace_builders import (
    CLAUDE_CODE,
    CONVERSATION,
    RAGPULSE,
    SYNTHETIC,
    distinct_blocks,
    published_trace,
    range_row,
    session_rows,
    shared_cache_hit_rate,
    write_ragpulse,
    write_rows,
)
from tests.timing import best_seconds


@pytest.mark.parametrize(
    ("path", "requests", "tokens", "blocks", "distinct", "last_seconds"),
    [
        (CONVERSATION, 12_031, 144_793_823, 288_500, 182_790, 3539.7105),
        (SYNTHETIC, 3_993, 61_194_628, 121_877, 43_924, 1022.025),
    ],
    ids=["conversation", "synthetic"],
)
def test_mooncakes_traces_have_the_sums_of_the_reference_reader(path, requests, tokens, blocks, distinct, last_seconds):
    """Requests, tokens, blocks and times, as the simulation that the policy was designed on saw them."""
    trace = published_trace(path)
    assert len(trace.requests) == requests
    assert sum(request.prompt.tokens for request in trace.requests) == tokens
    assert sum(len(request.prompt.exact_blocks) for request in trace.requests) == blocks
    assert distinct_blocks(trace) == distinct
    assert trace.requests[-1].at_seconds == last_seconds
    assert (trace.block_tokens, trace.closed_loop) == (512, False)
    assert [request.number for request in trace.requests] == list(range(requests))


def test_agents_have_the_sums_of_the_reference_reader(tmp_path: Path):
    """Of the first 40 sessions, 35 of which are different: thinking time is told apart from the call before."""
    lines = gzip.decompress(CLAUDE_CODE.read_bytes()).splitlines(keepends=True)
    heads = [place for place, line in enumerate(lines) if line.startswith(b'{"session"')]
    (tmp_path / "first.jsonl").write_bytes(b"".join(lines[: heads[40]]))
    trace = load_trace(tmp_path / "first.jsonl")
    assert trace.closed_loop
    assert (len(trace.requests), distinct_blocks(trace)) == (1266, 10_615)
    assert sum(request.prompt.tokens for request in trace.requests) == 101_609_098
    assert sum(len(request.prompt.exact_blocks) for request in trace.requests) == 197_836
    assert sum(request.think_seconds for request in trace.requests) == pytest.approx(37_262.96)
    assert len({request.session for request in trace.requests}) == 35
    assert trace.requests[-1].at_seconds == pytest.approx(7062.3214)


def test_ragpulse_has_the_sums_of_another_reader(tmp_path: Path):
    """Of its first thousand requests, cut into blocks token by token there."""
    for path in RAGPULSE.parent.glob("ragpulse_?_*"):
        (tmp_path / path.name).symlink_to(path)
    lines = [line for line in gzip.decompress(RAGPULSE.read_bytes()).splitlines(keepends=True) if line.strip()]
    (tmp_path / RAGPULSE.name).write_bytes(b"".join(lines[:1000]))
    trace = load_trace(tmp_path)
    assert len(trace.requests) == 1000
    assert sum(request.prompt.tokens for request in trace.requests) == 2_996_958
    assert sum(len(request.prompt.exact_blocks) for request in trace.requests) == 46_344
    assert distinct_blocks(trace) == 31_652
    assert shared_cache_hit_rate(trace) == pytest.approx(0.3137475)


@pytest.mark.parametrize(
    ("path", "cache_blocks", "percent"),
    [
        (CONVERSATION, None, 37.4),
        (CONVERSATION, 10_000, 21.6),
        (SYNTHETIC, None, 65.1),
        (SYNTHETIC, 3_000, 19.4),
    ],
    ids=["conversation", "conversation, 10,000", "synthetic", "synthetic, 3,000"],
)
def test_one_shared_cache_hits_what_others_measured(path, cache_blocks, percent):
    """The loaders and the outside check agree on which beginnings are equal."""
    assert 100 * shared_cache_hit_rate(published_trace(path), cache_blocks) == pytest.approx(percent, abs=0.1)


def test_equal_blocks_are_one_object_of_sixteen_bytes(tmp_path: Path):
    """So that a trace of millions of blocks fits into memory."""
    trace = load_trace(write_rows(tmp_path / "t.jsonl", [range_row(0), range_row(1, [[0, 1], [7, 1]])]))
    one, other = (request.prompt.exact_blocks for request in trace.requests)
    assert one[0] is other[0]
    assert one[1] != other[1]
    assert {len(block) for block in (*one, *other)} == {16}
    assert trace.requests[0].prompt.key_blocks is one


def test_requests_are_numbered_in_the_order_of_their_times(tmp_path: Path):
    """A file need not be sorted; equal times keep the file's order."""
    rows = [range_row(5, out=1), range_row(1, out=2), range_row(5, out=3), range_row(0, out=4)]
    trace = load_trace(write_rows(tmp_path / "t.jsonl.gz", rows))
    assert [(request.number, request.output_tokens) for request in trace.requests] == [(0, 4), (1, 2), (2, 1), (3, 3)]
    assert len(first_requests(trace, 2).requests) == 2


def test_the_published_form_is_spread_over_its_bins(tmp_path: Path):
    """Three requests of one three-second bin do not come at one moment."""
    rows = [
        {"timestamp": at_ms, "input_length": 700, "output_length": 9, "hash_ids": [0, number]}
        for number, at_ms in enumerate((0, 0, 0, 3000, 60_000, 60_000))
    ]
    trace = load_trace(write_rows(tmp_path / "t.jsonl", rows))
    assert [request.at_seconds for request in trace.requests] == [0, 1, 2, 3, 60, 62.5]
    assert len({request.prompt.exact_blocks[0] for request in trace.requests}) == 1
    assert trace.requests[0].prompt.tokens == 700


def test_sessions_share_tools_and_system_and_nothing_else(tmp_path: Path):
    """Equal tools share their blocks, an equal system prompt its own; changed beginnings and sub-agents share none."""
    own = [[1, 4]]
    rows = [
        *session_rows("a", (0, own), tools=64, system=64),
        *session_rows("b", (1, own), tools=64, system=64),
        *session_rows("c", (2, own), tools=64, system=128),
        *session_rows("d", (3, [[1, 1], [9, 1], [3, 2]]), tools=64, system=64),
        *session_rows("e", (4, own), tools=64, system=64, a="sub"),
    ]
    trace = agents(write_rows(tmp_path / "s.jsonl", rows), coarse=1, start_span_seconds=0.0)
    chains = {request.session: request.prompt.exact_blocks for request in trace.requests}
    shared = {
        (one, other): sum(a == b for a, b in zip(chains[one], chains[other]))
        for one, other in itertools.combinations(range(5), 2)
    }
    assert shared == {**dict.fromkeys(shared, 0), (0, 1): 2, (0, 2): 1, (0, 3): 1, (1, 2): 1, (1, 3): 1, (2, 3): 1}


def test_thinking_is_what_passed_less_a_nominal_answer(tmp_path: Path):
    """2 s and 20 ms a token; half a second at least, ten minutes at most."""
    rows = session_rows("a", *((seconds, [[1, 8]]) for seconds in (0, 1, 11, 2000)))
    trace = load_trace(write_rows(tmp_path / "s.jsonl", rows))
    assert [request.think_seconds for request in trace.requests] == [0.0, 0.5, 7.8, 600.0]
    assert {request.session for request in trace.requests} == {0}


def test_late_and_long_calls_are_left_out(tmp_path: Path):
    """Where nothing is left, that is an error."""
    path = write_rows(tmp_path / "s.jsonl", session_rows("a", (0, [[1, 16]]), (10, [[1, 8]]), (99, [[1, 8]])))
    assert len(agents(path, window_seconds=50.0, most_tokens=600).requests) == 1
    with pytest.raises(TraceError, match="no call is within 5 s and 600 tokens"):
        agents(path, window_seconds=5.0, most_tokens=600)


def test_a_prompt_shorter_than_a_block_shares_nothing_and_has_a_key(tmp_path: Path):
    """Placement needs a key for each request."""
    trace = load_trace(write_rows(tmp_path / "s.jsonl", session_rows("a", (0, [[1, 2]]), (5, [[1, 2]]))))
    one, other = (request.prompt for request in trace.requests)
    assert (one.exact_blocks, len(one.key_blocks)) == ([], 1)
    assert one.key_blocks != other.key_blocks


def test_calls_are_named_like_contents_from_the_start(tmp_path: Path):
    """What is kept of the call before is a shortcut only: random edits give the names of a plain chain."""
    random = Random(7)
    contents, calls = list(range(1, 40)), []
    for seconds in range(60):
        cut = random.randrange(len(contents) + 1)
        contents = contents[:cut] + [random.randrange(1, 60) for _ in range(random.randrange(1, 30))]
        calls.append((seconds, [[number, 1] for number in contents]))
    trace = agents(
        write_rows(tmp_path / "s.jsonl", session_rows("a", *calls)),
        coarse=2, window_seconds=1e6, most_tokens=10**6,
    )  # fmt: skip
    names: dict[tuple[int, ...], bytes] = {}
    for request, (_, ranges) in zip(trace.requests, calls):
        numbers = tuple(number for number, _ in ranges)
        assert len(request.prompt.exact_blocks) == len(numbers) // 2
        for place, block in enumerate(request.prompt.exact_blocks):
            assert names.setdefault(numbers[: 2 * place + 2], block) == block
    assert len(set(names.values())) == len(names)


def test_a_common_beginning_is_found_by_halving():
    """Against the plain loop."""
    random = Random(3)
    for _ in range(300):
        one = [random.randrange(3) for _ in range(random.randrange(9))]
        other = one[: random.randrange(9)] + [random.randrange(3) for _ in range(random.randrange(4))]
        plain = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other))))
        assert _common(one, other) == plain


def test_ragpulse_is_cut_into_blocks_over_the_borders_of_its_parts(tmp_path: Path):
    """A block is the same where its parts' pieces are, in the order of the prompt; its folder will do for a path."""
    lengths = {"sys_prompt": {1: 100}, "passages_ids": {1: 60, 2: 60}, "user_input": {1: 70, 2: 70}}
    rows = [
        {"timestamp": str(9 - number), "input_length": 0, "output_length": 3, "session_id": "s", "hash_ids": ids}
        for number, ids in enumerate(
            (
                {"sys_prompt": [1], "passages_ids": [1], "user_input": [1]},
                {"sys_prompt": [1], "passages_ids": [1], "user_input": [2]},
                {"sys_prompt": [1], "passages_ids": [2], "user_input": [1]},
            )
        )
    ]
    write_ragpulse(tmp_path, rows, lengths)
    trace = load_trace(tmp_path)
    third, second, first = (request.prompt.exact_blocks for request in trace.requests)
    assert [request.prompt.tokens for request in trace.requests] == [230] * 3
    assert {request.session for request in trace.requests} == {0}
    assert [len(first), first[:2] == second[:2], first[2] == second[2]] == [3, True, False]
    assert [first[0] == third[0], first[1] == third[1], first[2] == third[2]] == [True, False, False]


GOOD = range_row()
PUBLISHED = {"timestamp": 1, "input_length": 9, "output_length": 1, "hash_ids": [0]}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([GOOD, {**GOOD, "in": -1}], r"line 2: `in` is -1, it must be from 0"),
        ([GOOD, {**GOOD, "in": "many"}], "line 2: `in` is no number"),
        ([GOOD, {**GOOD, "out": 1.5}], "line 2: `out` is 1.5, it must be a whole number"),
        ([GOOD, {**GOOD, "t": 1e999}], "line 2: `t` is inf"),
        ([GOOD, {**GOOD, "ranges": 7}], "line 2: `ranges` is no list"),
        ([GOOD, {**GOOD, "ranges": [7]}], r"line 2: `ranges` must be a list of \[first id, count\]"),
        ([GOOD, {**GOOD, "ranges": [[0, 10**12]]}], "line 2: `ranges` lists more blocks than a prompt can have"),
        ([GOOD, {**GOOD, "ranges": [[0, 9]]}], "line 2: 1024 tokens are 2 blocks of 512, but 9 are listed"),
        ([GOOD, {"t": 0, "in": 5}], "line 2: `out` is missing"),
        ([GOOD, [1]], "line 2: a JSON object is wanted"),
        ([{"when": 1}], "line 1: the format is not known by its fields when; known are: a recording"),
        ([], "the file is empty"),
        ([PUBLISHED, {**PUBLISHED, "hash_ids": ["x"]}], "line 2: a block id is no number"),
        (session_rows("a", (0, []), h=5), "line 2: `h` is no list"),
        (session_rows("a", (0, []), h=[[1, -4]]), "line 2: `h` lists more blocks than a prompt can have"),
        (session_rows("a", (0, []), h=[[1]]), "line 2: `h` must be a list"),
    ],
)  # fmt: skip
def test_a_wrong_trace_says_where_and_what(tmp_path: Path, rows: list[Any], said: str):
    """The file's name, the line, the field."""
    path = write_rows(tmp_path / "broken.jsonl", rows)
    with pytest.raises(TraceError, match=said) as raised:
        load_trace(path)
    assert "broken.jsonl" in str(raised.value)


def test_what_is_no_trace_file_is_said(tmp_path: Path):
    """Missing, a folder of something else, no JSON, a gzip file that was cut."""
    with pytest.raises(TraceError, match=r"nowhere\.jsonl: No such file"):
        load_trace(tmp_path / "nowhere.jsonl")
    with pytest.raises(TraceError, match=r"one file \*trace\*\.jsonl in it; found: none"):
        load_trace(tmp_path)
    (tmp_path / "words").write_text("hello\n")
    with pytest.raises(TraceError, match="words, line 1: this is no JSON"):
        load_trace(tmp_path / "words")
    whole = gzip.compress("".join(json.dumps(range_row(number)) + "\n" for number in range(2000)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match=r"cut\.gz: the file is damaged"):
        load_trace(tmp_path / "cut.gz")


def test_a_call_before_its_session_is_an_error(tmp_path: Path):
    """Whose would it be?"""
    rows = session_rows("a", (0, [[1, 8]]))
    path = write_rows(tmp_path / "s.jsonl", rows[::-1])
    with pytest.raises(TraceError, match="line 1: a call stands before the first session's header"):
        agents(path)


def test_ragpulse_without_its_parts_says_which_are_missing(tmp_path: Path):
    """A file of lengths that is not there, and an id that no file knows."""
    row = {"timestamp": "1", "output_length": 3, "session_id": "s", "hash_ids": {"history": [5]}}
    path = write_ragpulse(tmp_path, [row], {})
    with pytest.raises(TraceError, match=r"line 1: history 5 has no length in the file \*3_history\.jsonl"):
        load_trace(path)
    write_rows(path, [{**row, "hash_ids": 3}])
    with pytest.raises(TraceError, match="line 1: `hash_ids` must be an object of lists"):
        load_trace(path)
    (tmp_path / "ragpulse_2_passages.jsonl").unlink()
    with pytest.raises(TraceError, match=r"no \*2_passages\.jsonl beside it"):
        load_trace(path)


def test_every_format_is_known_by_other_fields():
    """No first line can be two things."""
    for one, other in itertools.combinations(FORMATS, 2):
        assert not one.fields <= other.fields or FORMATS.index(one) > FORMATS.index(other)


def test_the_conversation_trace_is_read_in_little_time():
    """0.6 seconds of one core, so that a replay of it is the replay."""
    assert best_seconds(lambda: load_trace(CONVERSATION), repeats=3) < 0.6
