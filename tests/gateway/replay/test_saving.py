"""The honest saving: what was computed as recorded, and would have been under others."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.replay.desk import Loaded, Source, load
from gateway.replay.saving import prefills, recorded_figures, saving_table
from router.replay.core import EngineSettings
from tests.gateway.recording.recording_builders import build_chain, build_served, write_recording
from tests.gateway.replay.replay_builders import build_result, write_chats

ENGINE = EngineSettings(prefill_tokens_per_second=100.0, prefill_fixed_seconds=0.5)


def build_recording(path: Path, *cached: int | None, **more: object) -> Loaded:
    """A request of 101 tokens for each number of cached ones."""
    served = [
        build_served(build_chain(1), at_seconds=1000.0 + number, prompt_tokens=101, cached_tokens=tokens, **more)
        for number, tokens in enumerate(cached)
    ]
    return load(Source(write_recording(path, served)))


def test_tokens_and_seconds_are_told_for_the_recording_and_each_policy(tmp_path: Path):
    """A fixed cost for each request, the rest by the rate."""
    told = prefills(build_recording(tmp_path / "r", 0, 101), {"homing": build_result(computed_tokens=50)}, ENGINE)
    assert told == {
        "as recorded": {"tokens": 101, "seconds": pytest.approx(1 + 1.01)},
        "homing": {"tokens": 50, "seconds": pytest.approx(1 + 0.5)},
    }


def test_what_workers_did_not_report_is_taken_to_be_like_the_rest(tmp_path: Path):
    """A worker that says nothing of its cache is no worker without one; if none says anything, nothing is told."""
    loaded = build_recording(tmp_path / "r", 101, None, 0, None)
    assert prefills(loaded, {}, ENGINE)["as recorded"]["tokens"] == 202
    assert prefills(build_recording(tmp_path / "s", None), {}, ENGINE) == {}


def test_a_report_beyond_the_prompt_is_cut(tmp_path: Path):
    """Some count more than there is; nobody computes less than nothing."""
    assert prefills(build_recording(tmp_path / "r", 5000), {}, ENGINE)["as recorded"]["tokens"] == 0


def test_a_trace_that_is_no_recording_has_only_the_policies(tmp_path: Path):
    """Nobody knows what became of it."""
    loaded = load(Source(write_chats(tmp_path / "t.jsonl")))
    assert list(prefills(loaded, {"homing": build_result()}, ENGINE)) == ["homing"]
    assert recorded_figures(loaded) == {}


def test_the_recordings_own_figures_are_real_ones(tmp_path: Path):
    """Hit rate by the workers' word, time to first token where answers were streamed, balance by requests."""
    served = [
        build_served(
            build_chain(number), at_seconds=float(number), worker="w2" if number == 3 else "w1", prompt_tokens=100,
            cached_tokens=50, ttft_seconds=None if number == 0 else float(number),
        )
        for number in range(4)
    ]  # fmt: skip
    told = recorded_figures(load(Source(write_recording(tmp_path / "r", served))))
    assert told == {
        "token_hit_rate": 0.5,
        "ttft_s": {"mean": 2.0, "p50": 2.0, "p90": 3.0, "p99": 3.0},
        "total_s": {"mean": 1.5},
        "requests_max_over_mean": 1.5,
    }
    whole = recorded_figures(build_recording(tmp_path / "s", 50, ttft_seconds=None))
    assert "ttft_s" not in whole


def test_percentiles_are_those_of_a_hand_count_and_a_limit_leaves_the_rest_out(tmp_path: Path):
    """Of 1 to 100 the 51st, 91st and last; of the first five only those."""
    served = [build_served(build_chain(1), at_seconds=float(n), ttft_seconds=float(n)) for n in range(1, 101)]
    path = write_recording(tmp_path / "r", served)
    assert recorded_figures(load(Source(path)))["ttft_s"] == {"mean": 50.5, "p50": 51.0, "p90": 91.0, "p99": 100.0}
    assert recorded_figures(load(Source(path, limit=5)))["ttft_s"]["mean"] == 3.0


def test_the_table_compares_with_the_first_policy():
    """How many times its seconds everybody else takes."""
    told = {"round_robin": {"tokens": 12_000, "seconds": 30.0}, "homing": {"tokens": 8000, "seconds": 20.0}}
    head, first, second = (line.split() for line in saving_table(told, "homing").splitlines())
    assert head[-2:] == ["x", "homing"]
    assert first == ["round_robin", "12,000", "30", "1.50"]
    assert second[-1] == "1.00"
