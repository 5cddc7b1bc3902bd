"""The loop's own pulse: measured, bounded, and honest about a stall."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from gateway.loop_watch import LAG_BOUND_SECONDS, LoopWatch
from gateway.metrics import Metrics
from tests.gateway.test_probes import until


def build_watch(clock=time.monotonic):
    metrics = Metrics(CollectorRegistry())
    return LoopWatch(metrics, clock), metrics


def ticks(metrics):
    return metrics.registry.get_sample_value("homing_event_loop_lag_seconds_count") or 0


async def test_a_turning_loop_is_alive():
    """It ticks, and each tick is a figure."""
    watch, metrics = build_watch()
    async with watch:
        await until(lambda: ticks(metrics) >= 2)
        assert watch.turns
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "loop watch"]


async def test_a_stall_shows_at_once_and_afterwards():
    """While it lasts by the clock, later by the tick that came late."""
    now = [0.0]
    watch, metrics = build_watch(lambda: now[0])
    async with watch:
        await asyncio.sleep(0)
        now[0] = LAG_BOUND_SECONDS + 1.0
        assert not watch.turns
        await until(lambda: ticks(metrics) >= 1)
        assert watch.worst_lag_seconds >= LAG_BOUND_SECONDS
        assert not watch.turns


async def test_an_old_stall_is_forgiven():
    """A process that recovered is not killed for its past."""
    now = [0.0]
    watch, _ = build_watch(lambda: now[0])
    watch._lags.extend([LAG_BOUND_SECONDS + 1.0, *[0.0] * 49])
    assert not watch.turns
    watch._lags.append(0.0)
    assert watch.turns


async def test_tasks_are_counted_when_somebody_looks():
    """What is left running after a request would show as a growing number."""
    watch, metrics = build_watch()
    async with watch:
        metrics.refresh()
        before = metrics.registry.get_sample_value("homing_event_loop_tasks")
        more = asyncio.create_task(asyncio.sleep(60))
        metrics.refresh()
        assert metrics.registry.get_sample_value("homing_event_loop_tasks") == before + 1
        more.cancel()
