"""Rows A5–A7 and D7: workers that accept and do not answer, stop in the middle, or are slow."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.faults.client import Answer, failed, load, load_while, new_nonce, quantile
from tests.faults.stage import Stage, until

UNANSWERED_AFTER_SECONDS = 20.0
WAVE = 40


async def two_waves(stage: Stage, *, stream: bool | None) -> None:
    """Forty requests while one of four hangs or stalls, and forty more after they ended."""
    gateway = await stage.gateway()
    client = stage.client(gateway, seconds=UNANSWERED_AFTER_SECONDS)
    first = await load(client, WAVE, at_once=WAVE, stream=stream)
    second = await load(client, WAVE, at_once=WAVE, stream=stream)
    bad = stage.workers[0]
    seen = {answer.nonce for answer in second}
    went = sum(
        line.get("nonce") in seen and "begin" in line and line["worker"] == bad.name for line in stage.attempts()
    )
    unanswered = [sum(answer.trouble == "late" for answer in wave) for wave in (first, second)]
    slowest = max(answer.seconds for answer in first)
    stage.row.note(f"wave 1: {len(failed(first))} errors, all answered in {slowest:.1f} s; wave 2: {went} sent to it")
    wrong = len(failed(second))
    stage.row.holds(
        f"unanswered after 20 s: {unanswered[0]} of 40, then {unanswered[1]} of 40 ({wrong} errors)",
        unanswered == [0, 0] and not wrong and slowest <= 3.5,
    )


@pytest.mark.row("A5", smoke=True)
async def test_a_frozen_worker_leaves_nobody_waiting(stage: Stage) -> None:
    """SIGSTOP: it accepts, and neither answers nor is healthy."""
    workers = await stage.start_workers(4)
    workers[0].behaviour["mode"] = "ok"
    gateway = await stage.gateway()
    client = stage.client(gateway, seconds=UNANSWERED_AFTER_SECONDS)
    workers[0].freeze()
    first = await load(client, WAVE, at_once=WAVE, stream=True)
    second = await load(client, WAVE, at_once=WAVE)
    late = [sum(answer.trouble == "late" for answer in wave) for wave in (first, second)]
    slowest = max(answer.seconds for answer in first)
    stage.row.note(f"wave 1: {len(failed(first))} errors, all answered in {slowest:.1f} s")
    stage.row.holds(
        f"unanswered after 20 s: {late[0]} of 40, then {late[1]} of 40 ({len(failed(second))} errors)",
        late == [0, 0] and not failed(second) and slowest <= 3.5,
    )


@pytest.mark.row("A5h")
async def test_a_worker_that_hangs_with_a_healthy_page_leaves_nobody_waiting(stage: Stage) -> None:
    """Its /health says yes; its answers say what it is."""
    await stage.start_workers(4)
    await stage.workers[0].set(mode="hang")
    await two_waves(stage, stream=True)


@pytest.mark.row("A6")
async def test_a_worker_that_stalls_in_mid_stream_leaves_nobody_waiting(stage: Stage) -> None:
    """Three tokens, then nothing: an error event after the idle time, and the second wave goes elsewhere."""
    await stage.start_workers(4)
    await stage.workers[0].set(mode="stall")
    await two_waves(stage, stream=True)


def long_prompt() -> str:
    """Some two thousand tokens that begin like no other: long enough that a slow prefill is worth avoiding."""
    return f"{new_nonce()} " + "a long story about many things " * 270


@pytest.mark.row("A7", seconds=180)
async def test_a_slow_worker_gets_less_and_slows_nobody_else(stage: Stage) -> None:
    """One of four ten times slower: its share from 5 s on, the p95 over all from 15 s on, and that it stays."""
    workers = await stage.start_workers(4, first_seconds=0.05, gap_seconds=0.005)
    gateway = await stage.gateway()
    client = stage.client(gateway)

    async def ask_for(seconds: float) -> list[Answer]:
        over = time.monotonic() + seconds
        return await load_while(
            client, lambda: time.monotonic() < over, at_once=8, fresh=lambda: {"text": long_prompt()}, stream=True
        )

    await ask_for(3.0)
    calm = [answer.seconds for answer in await ask_for(5.0)]
    await workers[0].set(first_seconds=0.5, gap_seconds=0.05)
    await ask_for(5.0)
    before = await asyncio.gather(*(worker.state() for worker in workers))
    learning = await ask_for(10.0)
    after = await asyncio.gather(*(worker.state() for worker in workers))
    answers = await ask_for(8.0)
    counts = [late["begun"] - early["begun"] for early, late in zip(before, after, strict=True)]
    share = 4 * counts[0] / sum(counts)
    ratio = quantile([answer.seconds for answer in answers], 0.95) / quantile(calm, 0.95)
    up = await gateway.metric("homing_backend_up", backend="w0")
    wrong = len(failed([*learning, *answers]))
    stage.row.holds(
        f"p95 {ratio:.2f} x, share {share:.2f} of fair, {'up' if up else 'thrown out'}, {wrong} errors",
        ratio <= 1.5 and share < 0.5 and up == 1 and not wrong,
    )


@pytest.mark.row("D7")
async def test_readiness_tells_the_truth(stage: Stage) -> None:
    """/readyz turns red when no worker has taken a request for ten seconds while there is traffic; green after."""
    workers = await stage.start_workers(3)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    assert await gateway.ready()
    for worker in workers:
        await worker.set(mode="hang")
    running = True
    traffic = asyncio.create_task(load_while(client, lambda: running, at_once=4, stream=True))

    async def red() -> bool:
        return not await gateway.ready()

    took = await until(red, seconds=40)
    running = False
    for worker in workers:
        await worker.set(mode="ok")
    await traffic

    async def serves() -> bool:
        return (await client.ask()).ok and await gateway.ready()

    healed = await until(serves, seconds=20, every=0.1)
    stage.row.holds(f"red after {took:.1f} s, green {healed:.1f} s after healing", took <= 13 and healed <= 3)
