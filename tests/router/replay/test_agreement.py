"""Our replay against figures of a second simulator on the same trace; `bench/agreement.py` has all of them."""

from __future__ import annotations

import pytest

from bench.agreement import Agreement, Cell, compare, jittered, read, reference, replayed

SEEDS = (1, 2, 3)


def cell_of(policy: str) -> Cell:
    """The reference for 3,993 requests of Mooncake's synthetic trace at 0.9 of what is sustained."""
    return next(cell for cell in reference() if (cell.trace, cell.policy) == ("mooncake_synthetic", policy))


@pytest.mark.parametrize("policy", ["homing", "oracle", "ideal"])
def test_the_reference_is_agreed_with(policy):
    """Mean time to first token within 2 %; hit rate within 0.5 points, one seed's spread there being 0.35."""
    cell = cell_of(policy)
    found = compare(cell, [replayed(cell, seed) for seed in SEEDS])
    assert abs(found.ttft_difference) < 0.02
    assert abs(found.hit_rate_difference) < 0.005


def test_jitter_keeps_the_order_and_the_times():
    """Microseconds, by the seed."""
    trace = read("mooncake_synthetic")
    moved = jittered(trace, 1)
    assert moved.requests[5].at_seconds == pytest.approx(trace.requests[5].at_seconds, abs=1e-6)
    assert moved.requests[5].at_seconds != jittered(trace, 2).requests[5].at_seconds


@pytest.mark.parametrize(
    ("agreement", "holds"),
    [
        (Agreement(0.019, 0.001, -0.0019, 0.0001), True),
        (Agreement(-0.021, 0.001, 0.0, 0.0001), False),
        (Agreement(0.021, 0.011, 0.0, 0.0001), True),
        (Agreement(0.0, 0.001, 0.003, 0.001), False),
    ],
)
def test_a_difference_is_one_only_beyond_chance(agreement, holds):
    """2 % and 0.2 points, or two standard errors."""
    assert agreement.holds is holds
