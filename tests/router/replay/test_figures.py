"""Figures of a replay by hand, and what a fleet sustains."""

from __future__ import annotations

import pytest

from router.replay.core import Outcome, Replayed
from router.replay.figures import figures
from router.replay.saturation import sustained_requests_per_second
from tests.router.replay.replay_builders import Ask, build_settings, build_trace


def build_replayed(*ttft: float) -> Replayed:
    """So many requests, one a second, all but the last at worker 0 of three; a fifth of each prompt was cached."""
    outcomes = [
        Outcome(number, int(number == len(ttft) - 1), float(number), seconds, seconds + 2.0, 20)
        for number, seconds in enumerate(ttft)
    ]
    return Replayed(outcomes, [4.0, 1.0, 1.0], 10.0)


def test_figures_by_hand():
    """Ten requests; quantiles are of the sorted times, SLO misses are those over five seconds."""
    ttft = [0.5, 0.1, 0.2, 0.3, 0.4, 6.0, 0.6, 0.7, 0.8, 5.0]
    trace = build_trace(*[Ask(float(number), "a") for number in range(10)])
    found = figures(trace, build_replayed(*ttft))
    assert found.token_hit_rate == 0.2
    assert found.ttft_mean_seconds == pytest.approx(1.46)
    assert (found.ttft_p50_seconds, found.ttft_p90_seconds, found.ttft_p99_seconds) == (0.6, 6.0, 6.0)
    assert found.total_mean_seconds == pytest.approx(3.46)
    assert found.busy_max_over_mean == pytest.approx(2.0)
    assert found.requests_max_over_mean == pytest.approx(2.7)
    assert found.slo_share == 0.9
    assert found.requests_per_second == pytest.approx(10 / 14)
    assert figures(trace, build_replayed(*ttft), slo_seconds=0.35).slo_share == pytest.approx(0.3)


def test_there_are_no_figures_of_nothing():
    """The error names the trace."""
    with pytest.raises(ValueError, match="'small' has no requests"):
        figures(build_trace(), Replayed([], [0.0], 0.0))


def test_a_fleet_sustains_what_it_serves_when_flooded():
    """Two workers, 0.6 s for each of 40 prompts that share nothing: 40 in 12 s."""
    trace = build_trace(*[Ask(100.0 * number, str(number)) for number in range(40)])
    assert sustained_requests_per_second(trace, build_settings()) == pytest.approx(40 / 12)


def test_decoding_is_work_in_engine_b():
    """Longer answers, fewer requests a second; in engine A answers cost nothing."""
    short, long = (
        build_trace(*[Ask(0.0, str(number), output_tokens=tokens) for number in range(40)]) for tokens in (2, 50)
    )
    for kind, slower in (("A", False), ("B", True)):
        settings = build_settings(kind=kind)
        assert (
            sustained_requests_per_second(long, settings) < sustained_requests_per_second(short, settings)
        ) is slower
