"""Requests that come while no worker is up are held where the configuration says so: the first may start one."""

from __future__ import annotations

import asyncio

import pytest

from gateway.limits import line
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import scripted_worker, until


async def test_a_request_waits_for_the_first_worker_and_is_answered_by_it():
    """G-12: the gauge says that somebody waits, which a scaler may go by; then 200, and nothing is left."""
    async with scripted_worker(healthy=False) as worker:
        async with running_gateway(worker, hold=10.0, probe_seconds=0.05) as running:
            asking = [asyncio.create_task(running.ask()) for _ in range(3)]
            await until(lambda: running.count("queued_requests", model="m") == 3)
            worker.healthy = True
            assert [answer.status for answer in await asyncio.gather(*asking)] == [200] * 3
            await until(running.settled)
            assert running.count("queued_requests", model="m") == 0


async def test_a_client_that_leaves_is_no_longer_held():
    """G-12: its entry is gone, and it never goes to a worker."""
    async with scripted_worker(healthy=False) as worker:
        async with running_gateway(worker, hold=10.0, probe_seconds=0.05) as running:
            asking = asyncio.create_task(running.ask())
            await until(lambda: running.count("queued_requests", model="m") == 1)
            asking.cancel()
            await until(lambda: running.count("queued_requests", model="m") == 0)
            worker.healthy = True
            await until(lambda: running.gateway.fleet.worker("w1").up)
            assert worker.exchanges == []


async def test_who_waited_in_vain_is_told_so():
    """503 with a hint when to try again."""
    async with scripted_worker(healthy=False) as worker:
        async with running_gateway(worker, hold=0.2, probe_seconds=0.05) as running:
            answer = await running.ask()
    assert (answer.status, answer.error["code"]) == (503, "no_backend")
    assert "No worker of `m` is up" in answer.error["message"]
    assert answer.fields["retry-after"] == "1"


@pytest.mark.parametrize("healthy", [False, True])
async def test_no_more_are_held_than_may(healthy: bool, monkeypatch):
    """G-12: the last in order gets 503; where a worker is up nobody is held."""
    monkeypatch.setattr(line, "HELD", 2)
    async with scripted_worker(healthy=healthy) as worker:
        async with running_gateway(worker, hold=0.5, probe_seconds=0.05) as running:
            answers = await asyncio.gather(*(running.ask() for _ in range(3)))
    assert {answer.status for answer in answers} == {200 if healthy else 503}


async def test_without_the_setting_nobody_is_held():
    """A fleet that is down answers at once."""
    async with scripted_worker(healthy=False) as worker, running_gateway(worker, probe_seconds=0.05) as running:
        async with asyncio.timeout(2):
            assert (await running.ask()).status == 503
        assert running.count("queue_seconds_count", model="m") == 0
