"""Rows C1–C6 and C12: Redis that is not there, is killed, frozen, slow, flushed, back, or holds what nobody wrote."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from tests.end_to_end.redis_server import RedisServer
from tests.faults.client import Answer, Client, failed, load, load_while, quantile
from tests.faults.proxy import FaultProxy, fault_proxy
from tests.faults.stage import GatewayProcess, Stage, until

AT_ONCE = 6
ADDED_MS = 5.0
Act = Callable[[], Awaitable[None] | None]


async def two_gateways(stage: Stage, url: str) -> list[GatewayProcess]:
    """Replicas on one Redis, with limits that count in it."""
    await stage.start_workers(3, first_seconds=0.01)
    return [await stage.gateway(redis={"url": url}) for _ in range(2)]


@asynccontextmanager
async def two_gateways_behind_a_proxy(
    stage: Stage,
) -> AsyncIterator[tuple[RedisServer, FaultProxy, list[GatewayProcess]]]:
    """A Redis of their own, and a fault proxy between it and both."""
    with stage.redis() as redis:
        redis.start()
        async with fault_proxy("127.0.0.1", redis.port) as proxy:
            yield redis, proxy, await two_gateways(stage, f"redis://127.0.0.1:{proxy.port}/0")


async def state_of(gateway: GatewayProcess) -> list[str]:
    return list((await gateway.readyz()).get("degraded", []))


async def paced(clients: list[Client], seconds: float) -> list[Answer]:
    """A few at a time over both gateways for so long: enough to be hurt, too little to queue."""
    over = time.monotonic() + seconds
    found = await asyncio.gather(
        *(load_while(client, lambda: time.monotonic() < over, at_once=AT_ONCE // 2) for client in clients)
    )
    return [answer for answers in found for answer in answers]


async def beside_a_control(stage: Stage, clients: list[Client], hurt: Act, heal: Act) -> None:
    """Load without the fault and with it, in turn within the minute; the added p99, the first 100 ms left out."""
    count, calm, hit, wrong = stage.row.size(3000, 200), [], [], 0
    await load(clients, 200, at_once=AT_ONCE)
    rounds = stage.row.size(2, 1)
    seconds = 3.0 if stage.row.full else 1.0
    while len(calm) + len(hit) < count or rounds > 0:
        rounds -= 1
        answers = await paced(clients, seconds)
        wrong += len(failed(answers))
        calm += [answer.ttft for answer in answers]
        await _act(hurt)
        began = time.monotonic()
        answers = await paced(clients, seconds)
        wrong += len(failed(answers))
        hit += [answer.ttft for answer in answers if answer.began - began > 0.1]
        await _act(heal)
        await asyncio.sleep(2.5 if stage.row.full else 0.5)
    added = 1000 * (quantile(hit, 0.99) - quantile(calm, 0.99))
    stage.row.holds(
        f"{wrong} errors of {len(calm) + len(hit)}, p99 {added:+.1f} ms ({1000 * quantile(calm, 0.99):.0f} ms without)",
        not wrong and (added <= ADDED_MS or not stage.row.full),
    )


async def _act(act: Act) -> None:
    done = act()
    if done is not None:
        await done


@pytest.mark.row("C1")
async def test_a_redis_that_is_not_there_at_the_start_keeps_nobody_waiting(stage: Stage) -> None:
    """It starts, is ready, says what it misses, serves; and joins when Redis comes."""
    with stage.redis() as redis:
        await stage.start_workers(2)
        began = time.monotonic()
        gateway = await stage.gateway(redis={"url": redis.url})
        started = time.monotonic() - began
        degraded = await state_of(gateway)
        answers = await load(stage.client(gateway), 300)
        redis.start()

        async def joined() -> bool:
            return await state_of(gateway) == []

        joining = await until(joined, seconds=15)
    stage.row.holds(
        f"ready after {started:.1f} s, degraded {degraded}, {len(failed(answers))} errors of 300, "
        f"joined {joining:.1f} s after Redis came",
        degraded == ["redis"] and not failed(answers) and joining <= 2.5,
    )


async def stopped_under_load(
    stage: Stage, stop: Callable[[RedisServer], None], go_on: Callable[[RedisServer], None]
) -> None:
    """Two gateways whose Redis stops and goes on, beside the same minute without that."""
    with stage.redis() as redis:
        redis.start()
        clients = [stage.client(gateway) for gateway in await two_gateways(stage, redis.url)]
        await beside_a_control(stage, clients, partial(stop, redis), partial(go_on, redis))


@pytest.mark.row("C2", seconds=180)
async def test_a_killed_redis_costs_no_answer_and_no_time(stage: Stage) -> None:
    """SIGKILL under load, and an empty one at the same place afterwards."""
    await stopped_under_load(stage, RedisServer.kill, RedisServer.start)


@pytest.mark.row("C3", seconds=180)
async def test_a_frozen_redis_costs_no_answer_and_no_time(stage: Stage) -> None:
    """SIGSTOP: connections stay and nothing is answered."""
    await stopped_under_load(stage, RedisServer.freeze, RedisServer.thaw)


@pytest.mark.row("C4", seconds=180)
async def test_a_slow_redis_costs_no_answer_and_no_time(stage: Stage) -> None:
    """200 ms each way, by the fault proxy."""
    async with two_gateways_behind_a_proxy(stage) as (_, proxy, gateways):

        def slow() -> None:
            proxy.delay_seconds = 0.2

        def quick() -> None:
            proxy.delay_seconds = 0.0

        await beside_a_control(stage, [stage.client(gateway) for gateway in gateways], slow, quick)


@pytest.mark.row("C5")
async def test_replicas_are_together_again_soon_after_redis_is_back(stage: Stage) -> None:
    """Killed and started three times: how long until both have joined, and how often they tried to connect."""
    async with two_gateways_behind_a_proxy(stage) as (redis, proxy, gateways):

        async def joined() -> bool:
            return [await state_of(gateway) for gateway in gateways] == [[], []]

        slowest, rate = 0.0, 0.0
        for _ in range(3):
            redis.kill()
            before = proxy.connections
            await asyncio.sleep(5.0)
            rate = max(rate, (proxy.connections - before) / 5.0 / len(gateways))
            redis.start()
            slowest = max(slowest, await until(joined, seconds=20))
    stage.row.holds(f"joined after {slowest:.1f} s, {rate:.1f} connects a second each", slowest <= 2.5 and rate <= 5)


@pytest.mark.row("C6", seconds=180)
async def test_a_flushed_redis_costs_no_answer_and_no_time(stage: Stage) -> None:
    """FLUSHALL and SCRIPT FLUSH, ten times a second."""
    with stage.redis() as redis:
        redis.start()
        clients = [stage.client(gateway) for gateway in await two_gateways(stage, redis.url)]
        flushing: list[asyncio.Task[None]] = []

        def begin() -> None:
            flushing.append(asyncio.create_task(_flush(redis)))

        def stop() -> None:
            flushing.pop().cancel()

        await beside_a_control(stage, clients, begin, stop)


async def _flush(redis: RedisServer) -> None:
    while True:
        await asyncio.to_thread(redis.command, "FLUSHALL")
        await asyncio.to_thread(redis.command, "SCRIPT", "FLUSH")
        await asyncio.sleep(0.1)


@pytest.mark.row("C12", seconds=180)
async def test_hostile_values_in_redis_are_ignored(stage: Stage) -> None:
    """Every key there is gets a value of another type, a huge one, and noise, again and again under load."""
    with stage.redis() as redis:
        redis.start()
        gateways = await two_gateways(stage, redis.url)
        clients = [stage.client(gateway) for gateway in gateways]
        await load(clients, 200)
        hostile, answers = 0, []
        for turn in range(20):
            keys = [key for key in redis.command("KEYS", "*").split(b"\r\n")[2::2] if key]
            for key in keys:
                _spoil(redis, key, turn)
                hostile += 1
            answers += await load(clients, 150, at_once=AT_ONCE)
        redis.command("FLUSHALL")

        async def joined() -> bool:
            return [await state_of(gateway) for gateway in gateways] == [[], []]

        healed = await until(joined, seconds=20)
        ignored = sum([await gateway.metric("homing_news_ignored_total") for gateway in gateways])
    stage.row.holds(
        f"{len(failed(answers))} errors of {len(answers)} with {hostile} hostile values, {ignored:.0f} ignored and "
        f"counted, together {healed:.1f} s after",
        not failed(answers) and hostile > 0,
    )


def _spoil(redis: RedisServer, key: bytes, turn: int) -> None:
    noise = os.urandom(64)
    if turn % 4 == 0:
        redis.command("SET", key, noise)
    elif turn % 4 == 1:
        redis.command("DEL", key)
        redis.command("HSET", key, b"a", b"\xff" * 100_000)
    elif turn % 4 == 2:
        redis.command("DEL", key)
        redis.command("XADD", key, "*", b"news", noise, b"\x00", b"x" * 200_000)
    else:
        redis.command("DEL", key)
        redis.command("LPUSH", key, b"-1", b"9" * 400, noise)
