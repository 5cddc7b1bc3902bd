"""Row E16, short: what a gateway holds is given back to the last file, task and count. `make soak` is the long one."""

from __future__ import annotations

import math

import pytest

from tests.faults.soak import slope_of, soak
from tests.faults.stage import Stage


@pytest.mark.row("E16", smoke=True, seconds=240)
async def test_everything_is_given_back_after_a_load_with_faults(stage: Stage) -> None:
    """Two thousand requests with resets, stalls, refusals and clients that leave: files, tasks, gauges as before."""
    requests = stage.row.size(6000, 600)
    found = await soak(stage, requests, requests // 3, stage.row.size(2000, 300))
    stage.row.holds(found.left(), found.given_back)  # memory still fills what is bounded


def test_growth_is_told_per_hundred_thousand_requests() -> None:
    """A line is found as it is, with its doubt; two points are no line."""
    growth, upper = slope_of([10.0, 10.1, 10.2, 10.3], 10_000)
    assert math.isclose(growth, 1.0)
    assert math.isclose(upper, 1.0, abs_tol=1e-6)
    assert slope_of([10.0, 10.4, 9.8, 10.2], 10_000)[1] > slope_of([10.0, 10.4, 9.8, 10.2], 10_000)[0]
    assert math.isnan(slope_of([1.0, 2.0], 10_000)[0])
