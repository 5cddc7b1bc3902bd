"""Under live load, three gateways on Redis: kills, an outage, a newcomer and a drain; in short. `make bench-drills`
has the figures."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bench.live.drills import DRILLS, Scene
from bench.live.drive import Driver, Load
from bench.live.processes import free_ports, running
from bench.live.slices import conversation
from bench.live.stage import Stage, gateways, redis_command, redis_url, simulated_workers, worker_counts

SPEED_UP = 20.0
JOINED_SECONDS = 15.0


@asynccontextmanager
async def stage_under_load(directory):
    """Four workers and a spare one, three gateways, and a load that goes on until it is stopped."""
    async with AsyncExitStack() as stack:
        stage = Stage(directory, workers=4, speed_up=SPEED_UP, pinned=False)
        *ports, spare = await stack.enter_async_context(simulated_workers(stage, 5))
        (redis_port,) = free_ports(1)
        redis = await stack.enter_async_context(running(redis_command(stage, redis_port)))
        section = {"url": redis_url(redis_port)}
        router = await stack.enter_async_context(gateways(stage, ports, 3, redis=section))
        driver = Driver(Load(conversation(2000, 2.0).planned(), router.ports, SPEED_UP, headers=router.headers))
        load = asyncio.ensure_future(driver.run())
        stack.callback(load.cancel)
        await driver.until(20.0)
        yield Scene(driver, router, redis, spare, stack, {}, redis_away_seconds=2.0), ports, load


async def until_joined(scene: Scene) -> None:
    """Until all three gateways say so."""
    async with asyncio.timeout(JOINED_SECONDS):
        while await scene.replicas_in_state("joined") < 3:  # noqa: ASYNC110 - another process knows
            await asyncio.sleep(0.1)


async def taken_up(port: int) -> int:
    """Requests that a worker has been given."""
    (counts,) = await worker_counts([port])
    return counts["requests"] + counts["waiting"]


@pytest.mark.slow
async def test_no_drill_costs_a_request(tmp_path):
    """A gateway's open answers are cut when it is killed; nothing else fails, and every change takes effect."""
    async with stage_under_load(tmp_path) as (scene, ports, load):
        await DRILLS["gateway killed"](scene)
        await until_joined(scene)
        await DRILLS["redis killed"](scene)
        assert scene.notes["replicas that went on alone"] == 3
        await until_joined(scene)
        await DRILLS["ninth worker"](scene)
        await DRILLS["worker drained"](scene)
        at_drained = await taken_up(ports[3])
        await scene.driver.until(scene.driver.now + 60.0)
        stopped_at = scene.driver.now
        scene.driver.stop_sending(stopped_at)
        answers = await load
        assert await taken_up(ports[3]) == at_drained
        assert await taken_up(scene.spare_port) > 0
    failed = [answer for answer in answers if answer.error and not answer.broken]
    assert failed == []
    assert len(answers) > 100
    assert any(answer.resent for answer in answers)
    assert {answer.target for answer in answers if answer.sent_at > stopped_at - 60.0} == {0, 1, 2}
