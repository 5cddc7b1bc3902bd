"""A desk replays its trace as often as it is asked to, each time from nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.replay.desk import POLICY_NAMES, Desk, Gateways, Job, Source, load
from router.replay.oracle import LeastRequests
from router.replay.traces import TraceError
from tests.gateway.recording.recording_builders import build_chain, build_served, write_recording
from tests.gateway.replay.replay_builders import build_setup, write_chats, write_sessions


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_serves_every_request(tmp_path: Path, policy: str):
    """And finds again what it had."""
    result = Desk(build_setup(write_chats(tmp_path / "t.jsonl"))).answer(Job(policy, 60, 1.0))
    assert result.figures is not None
    assert 0 < result.figures.token_hit_rate < 1
    assert result.figures.ttft_mean_seconds > 0


@pytest.mark.parametrize("kind", ["A", "B"])
def test_a_job_leaves_nothing_behind(tmp_path: Path, kind: str):
    """The second time gives the same as the first, whatever was replayed between."""
    desk = Desk(build_setup(write_chats(tmp_path / "t.jsonl"), kind=kind))
    first = desk.answer(Job("homing", 60, 1.0))
    desk.answer(Job("random", 9, 0.1))
    assert desk.answer(Job("homing", 60, 1.0)) == first


def test_tokens_that_were_not_cached_were_computed(tmp_path: Path):
    """Hit rate and computed tokens are two sides of one thing."""
    path = write_chats(tmp_path / "t.jsonl")
    tokens = sum(request.prompt.tokens for request in load(Source(path)).trace.requests)
    result = Desk(build_setup(path)).answer(Job("homing", 60, 1.0))
    assert result.figures is not None
    assert result.computed_tokens == pytest.approx(tokens * (1 - result.figures.token_hit_rate))


def test_the_ideal_has_one_cache_for_all(tmp_path: Path):
    """Nobody hits more."""
    desk = Desk(build_setup(write_chats(tmp_path / "t.jsonl")))
    rates = {name: desk.answer(Job(name, 20, 1.0)).figures.token_hit_rate for name in ("ideal", "least_loaded")}
    assert rates["ideal"] > rates["least_loaded"]


def test_a_flood_tells_what_is_sustained(tmp_path: Path):
    """More with a larger cache."""
    desk = Desk(build_setup(write_chats(tmp_path / "t.jsonl")))
    small, large = (desk.answer(Job(None, blocks)) for blocks in (1, 600))
    assert small.figures is None
    assert 0 < small.sustained_per_second < large.sustained_per_second


def test_of_several_gateways_each_counts_its_own_requests(tmp_path: Path):
    """Then least_loaded is the gateway's policy; with one it counts exactly. News that never comes costs hits."""
    path = write_chats(tmp_path / "t.jsonl", requests=240, seconds=0.2)
    alone = build_setup(path)
    assert isinstance(Desk(alone)._chooser("least_loaded", alone.engine), LeastRequests)
    several = build_setup(path, gateways=Gateways(4))
    assert not isinstance(Desk(several)._chooser("least_loaded", several.engine), LeastRequests)
    apart = build_setup(path, gateways=Gateways(4, None))
    rates = [Desk(each).answer(Job("homing", 60, 1.0)).figures.token_hit_rate for each in (several, apart)]
    assert rates[0] >= rates[1]


def test_a_job_says_what_it_is():
    """In progress and in errors."""
    assert str(Job("homing", 500, 0.5)) == "homing with 500 blocks, times x 0.5"
    assert str(Job(None, 500)) == "what least_loaded sustains with 500 blocks"


def test_a_source_may_be_cut_off_and_a_recordings_model_named(tmp_path: Path):
    """A limit counts from the start; a model of another name is an error."""
    assert len(load(Source(write_chats(tmp_path / "t.jsonl"), limit=7)).trace.requests) == 7
    assert load(Source(write_sessions(tmp_path / "s.jsonl"))).trace.closed_loop
    path = write_recording(tmp_path / "r", [build_served(build_chain(1)), build_served(build_chain(2), model="n")])
    loaded = load(Source(path, "n", 5))
    assert loaded.recording is not None
    assert (len(loaded.trace.requests), loaded.recording.model) == (1, "n")
    with pytest.raises(TraceError, match="name one of its models"):
        load(Source(path))
