"""A lane: jobs in order, in another thread, whatever a job does."""

from __future__ import annotations

import threading

import pytest

from backends.tiers.lane import Lane


def test_jobs_run_in_order_in_another_thread():
    """One thread for all of them."""
    lane, ran = Lane("test"), []
    for number in range(100):
        lane.put(lambda number=number: ran.append((number, threading.get_ident())))
    lane.close(5.0)
    assert [number for number, _ in ran] == list(range(100))
    assert len({thread for _, thread in ran}) == 1
    assert ran[0][1] != threading.get_ident()


def test_a_job_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture):
    """It is logged and the next one runs."""
    lane, ran = Lane("test"), []
    lane.put(lambda: 1 / 0)
    lane.put(lambda: ran.append(1))
    lane.close(5.0)
    assert ran == [1]
    assert "A job of test failed" in caplog.text


def test_closing_waits_no_longer_than_told():
    """A job that hangs does not hold up the end of the process."""
    lane, release = Lane("test"), threading.Event()
    lane.put(release.wait)
    lane.close(0.01)
    release.set()


def test_an_unused_lane_has_no_thread():
    """Building a tier starts nothing."""
    before = threading.active_count()
    lane = Lane("test")
    assert threading.active_count() == before
    lane.close(1.0)
