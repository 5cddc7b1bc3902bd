"""A plan finds the pace that a load means and runs each replay once."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.replay.desk import Job
from gateway.replay.plan import Pace, Plan, own_requests_per_second
from tests.gateway.replay.replay_builders import Here, build_setup, write_chats


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(build_setup(write_chats(tmp_path / "t.jsonl")))


def build_plan(here: Here, told: list[str] | None = None) -> Plan:
    return Plan(here.desk._trace, here.run, (told if told is not None else []).append)


def test_a_load_is_relative_to_what_is_sustained_with_the_cache(here: Here):
    """Sixty requests in 29.5 seconds, brought to nine tenths of the flood's rate."""
    pace = build_plan(here).pace(0.9, 60)
    sustained = here.desk.answer(Job(None, 60)).sustained_per_second
    assert pace.sustained_per_second == sustained
    assert own_requests_per_second(here.desk._trace) / pace.time_scale == pytest.approx(0.9 * sustained)


def test_another_load_of_the_same_pace():
    """Twice the load is half the time."""
    assert Pace(0.5, 2.0, 7.0).at(1.0) == Pace(1.0, 1.0, 7.0)


def test_every_replay_is_run_once_and_told(here: Here):
    """Asked for twice, or wanted by a picture as well."""
    told: list[str] = []
    plan = build_plan(here, told)
    first = plan.policies(["homing", "random"], Pace(1.0, 1.0), 60)
    again = plan.policies(["random", "homing", "random"], Pace(1.0, 1.0), 60)
    assert first == again
    assert len(here.done) == 2
    assert told == ["1 of 2: homing with 60 blocks, times x 1", "2 of 2: random with 60 blocks, times x 1"]
    plan.sweep(["homing"], Pace(1.0, 1.0), 60)
    assert len(here.done) == len(set(here.done)) == 2 + 8


def test_a_sweep_goes_over_loads_and_over_caches(here: Here):
    """Time to first token grows with the load, hit rate with the cache."""
    plan = build_plan(here)
    points = plan.sweep(["least_loaded"], plan.pace(0.9, 16), 16)
    by_load, by_cache = points.by_load["least_loaded"], points.by_cache["least_loaded"]
    assert list(by_load) == [0.5, 0.7, 0.9, 1.0, 1.1]
    assert list(by_cache) == [4, 8, 16, 32, 64]
    assert by_load[0.9] == by_cache[16]
    assert by_load[1.1].figures.ttft_mean_seconds > by_load[0.5].figures.ttft_mean_seconds
    assert by_cache[64].figures.token_hit_rate > by_cache[4].figures.token_hit_rate


def test_without_a_sustained_rate_the_sweep_is_in_multiples_of_the_traces_own_pace(here: Here):
    """As for a recording that is replayed at its own times."""
    points = build_plan(here).sweep(["homing"], Pace(2.0, 0.5), 60)
    assert list(points.by_load["homing"]) == [1.0, 1.5, 2.0, 2.5, 3.0]


def test_a_trace_that_takes_no_time_has_no_pace(tmp_path: Path):
    """Whoever asks for a load must be told so."""
    here = Here(build_setup(write_chats(tmp_path / "t.jsonl", seconds=0.0)))
    assert own_requests_per_second(here.desk._trace) == 0.0
