"""Background tasks: begun again when a fault ends them, told once, and missed when they stay dead."""

from __future__ import annotations

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry

from gateway.metrics import Metrics
from gateway.supervise import DEAD_AFTER_SECONDS, WELL_AFTER_SECONDS, Supervisor, end
from tests.gateway.scripted_worker import until


class Rig:
    """A supervisor under a clock of ours."""

    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = Metrics(CollectorRegistry())
        self.supervisor = Supervisor(self.metrics, lambda: self.now)

    def restarts(self, task: str) -> float:
        return self.metrics.registry.get_sample_value("homing_task_restarts_total", {"task": task}) or 0.0


async def test_a_task_that_dies_is_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    """Row D6: counted, told once, without the message, which may quote somebody."""
    rig, lives = Rig(), []

    async def work() -> None:
        lives.append(len(lives))
        if len(lives) < 4:
            raise ValueError("-".join(("sk", "secret")))
        await asyncio.Event().wait()

    with caplog.at_level(logging.ERROR):
        task = rig.supervisor.start("probe", work, name="probe w1")
        await until(lambda: len(lives) == 4)
    assert rig.restarts("probe") == 3
    assert [record.name for record in caplog.records] == ["homing.tasks"]
    assert "ValueError ended the task probe w1" in caplog.text
    assert "sk-secret" not in caplog.text
    task.cancel()


async def test_a_task_that_keeps_dying_is_dead() -> None:
    """Each beginning that ends at once is none; one that lasts is."""
    rig, may_live = Rig(), asyncio.Event()

    async def work() -> None:
        if not may_live.is_set():
            raise ValueError
        await asyncio.Event().wait()

    task = rig.supervisor.start("events", work)
    await until(lambda: rig.restarts("events") >= 2)
    assert rig.supervisor.dead() == ()
    rig.now += DEAD_AFTER_SECONDS
    await until(lambda: rig.restarts("events") >= 4)
    assert rig.supervisor.dead() == ("events",)
    may_live.set()
    await until(lambda: rig.supervisor._begun_at["events"] == rig.now and may_live.is_set())
    deaths = rig.restarts("events")
    await asyncio.sleep(0)
    rig.now += WELL_AFTER_SECONDS
    await until(lambda: rig.supervisor.dead() == () or rig.restarts("events") > deaths)
    task.cancel()


async def test_a_task_that_ends_or_is_stopped_is_not_missed() -> None:
    """Who comes and goes is no fault."""
    rig, lives = Rig(), []

    async def work() -> None:
        lives.append(1)

    await rig.supervisor.start("short", work)
    assert (len(lives), rig.restarts("short"), rig.supervisor.dead(1e9)) == (1, 0.0, ())

    async def fails() -> None:
        raise ValueError

    task = rig.supervisor.start("failing", fails)
    await until(lambda: rig.restarts("failing") >= 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert rig.supervisor.dead(1e9) == ()


async def test_a_cancellation_that_was_not_meant_for_a_task_does_not_end_it() -> None:
    """What it waits for may be cancelled by somebody else; only who cancels the task itself ends it."""
    rig, lives = Rig(), []

    async def work() -> None:
        lives.append(1)
        waited_for = asyncio.get_running_loop().create_future()
        if len(lives) == 1:
            waited_for.cancel()
        await waited_for

    task = rig.supervisor.start("probe", work)
    await until(lambda: len(lives) == 2)
    assert rig.restarts("probe") == 1
    await end(task)
    assert task.cancelled()


async def test_tasks_end_though_one_swallows_a_cancellation() -> None:
    """As redis does while it connects; what another raised before is not anybody's any more."""
    swallowed = []

    async def swallows() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.append(1)
        await asyncio.Event().wait()

    async def fails() -> None:
        raise ValueError

    tasks = [asyncio.create_task(swallows()), asyncio.create_task(fails())]
    await until(tasks[1].done)
    await asyncio.wait_for(end(*tasks, None), 5)
    assert (swallowed, [task.done() for task in tasks]) == ([1], [True, True])
