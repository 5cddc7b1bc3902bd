"""Rows D1–D6: gateways that are told to leave, are killed, are replaced, start, and meet a fault of their own."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

import pytest

from tests.faults.balancer import balancer
from tests.faults.client import Answer, Client, failed, load, quantile
from tests.faults.slices import ROUNDS, Slices, visit
from tests.faults.stage import GatewayProcess, Stage, until


async def open_streams(client: Client, count: int) -> list[asyncio.Task[Answer]]:
    """So many streams, each with its first token."""
    started: Counter[str] = Counter()

    def note(answer: Answer) -> None:
        started[answer.nonce] += 1

    tasks = [asyncio.create_task(client.ask(stream=True, on_bytes=note)) for _ in range(count)]
    await until(lambda: len(started) == count, seconds=20)
    return tasks


async def unready_after(gateway: GatewayProcess) -> float:
    """Milliseconds until /readyz says no."""

    async def no() -> bool:
        return not await gateway.ready()

    return 1000 * await until(no, seconds=5, every=0.002)


@pytest.mark.row("D1", smoke=True)
async def test_sigterm_lets_open_streams_end(stage: Stage) -> None:
    """All of them end as if nothing had happened, /readyz says no at once, and the process leaves after the last."""
    count = stage.row.size(500, 30)
    seconds = stage.row.size(7, 1)
    await stage.start_workers(2, tokens=10, gap_seconds=seconds / 10)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    streams = await open_streams(client, count)
    gateway.terminate()
    unready = await unready_after(gateway)
    answers = await asyncio.gather(*streams)
    last = max(answer.ended for answer in answers)
    code = await gateway.ended()
    exit_after = time.monotonic() - last
    whole = count - len(failed(answers))
    bound = 100 if stage.row.full else 1000
    stage.row.holds(
        f"{whole} of {count} finished, /readyz no after {unready:.0f} ms, exit {exit_after:.1f} s after, code {code}",
        whole == count and unready <= bound and exit_after <= 1.0 + (not stage.row.full) and code == 0,
    )


@pytest.mark.row("D2")
async def test_a_grace_that_is_too_short_is_told_in_band(stage: Stage) -> None:
    """Each open stream ends in an error event that says why; the process leaves in time, with code 0."""
    count, grace = stage.row.size(200, 20), 1.0
    await stage.start_workers(1, tokens=200, gap_seconds=0.2)
    gateway = await stage.gateway(timeouts={"drain_seconds": grace, "drain_delay_seconds": 0.2})
    client = stage.client(gateway)
    streams = await open_streams(client, count)
    began = time.monotonic()
    gateway.terminate()
    answers = await asyncio.gather(*streams)
    code = await gateway.ended()
    took = time.monotonic() - began
    told = sum(
        (answer.error or {}).get("code") == "gateway_shutdown" and not answer.done and answer.trouble is None
        for answer in answers
    )
    stage.row.holds(
        f"{told} of {count} told, exit {took:.1f} s after SIGTERM with a grace of {grace:g} s, code {code}",
        told == count and took <= 0.2 + grace + 2.0 and code == 0,
    )


@pytest.mark.row("D3", seconds=240)
async def test_a_killed_gateway_takes_only_its_own_requests_along(stage: Stage) -> None:
    """Three on one Redis; one is killed with 200 streams open, again and again: the others answer everything, as fast
    as before, and who was cut off is answered there."""
    with stage.redis() as redis:
        redis.start()
        await stage.start_workers(4, first_seconds=0.01, tokens=5)
        gateways = [await stage.gateway(redis={"url": redis.url}) for _ in range(3)]
        others, victim = [stage.client(gateway) for gateway in gateways[:2]], gateways[2]
        slices, cut, again = Slices(), 0, list[Answer]()
        await visit(others)
        for _ in range(ROUNDS):
            slices.calm.append(await visit(others))
            client = stage.client(victim)
            await asyncio.gather(*(worker.set(tokens=200, gap_seconds=0.1) for worker in stage.workers))
            streams = await open_streams(client, 200)
            await victim.kill()  # before the pace changes, which would let the streams end
            await asyncio.gather(*(worker.set(tokens=5, gap_seconds=0.0) for worker in stage.workers))
            slices.hit.append(await visit(others))
            cut += len(failed(await asyncio.gather(*streams)))
            again += await load(others, 200)
            await victim.start()
    assert cut == 200 * ROUNDS, "they would not be streams that were open at the kill"
    stage.row.holds(
        f"the others: {slices}; {len(failed(again))} of {cut} cut off not answered there",
        not slices.errors and not failed(again) and slices.ratio <= 1.2,
    )


@pytest.mark.row("D4", seconds=240)
async def test_replacing_every_gateway_costs_no_answer(stage: Stage) -> None:
    """One after another behind a balancer that honours /readyz, under load."""
    await stage.start_workers(3, first_seconds=0.01)
    gateways = [await stage.gateway() for _ in range(3)]
    count = 5000
    async with balancer(gateways) as front:
        client = stage.client(front.port)
        answers: list[Answer] = []
        replacing = asyncio.create_task(_replace_all(stage, front.gateways))
        while len(answers) < count or not replacing.done():
            answers += await load(client, 250, at_once=16)
        await replacing
    wrong = failed(answers)
    stage.row.holds(
        f"{len(wrong)} errors of {len(answers)} ({client.stale} times a kept connection was closed and asked anew)",
        not wrong,
    )


async def _replace_all(stage: Stage, gateways: list[GatewayProcess]) -> None:
    for old in tuple(gateways):
        gateways.append(await stage.gateway())
        await asyncio.sleep(0.3)
        old.terminate()
        assert await old.ended() == 0
        gateways.remove(old)


@pytest.mark.row("D5")
async def test_a_gateway_is_ready_soon_and_never_too_early(stage: Stage) -> None:
    """Ten starts: how long until /readyz says yes, and that the first request after it is answered."""
    await stage.start_workers(2)
    times, wrong = [], 0
    for _ in range(10):
        gateway = await stage.gateway(start=False)
        began = time.monotonic()
        await gateway.start(wait=False)
        await until(gateway.ready, every=0.01, seconds=20)
        times.append(time.monotonic() - began)
        wrong += not (await stage.client(gateway).ask()).ok
        await gateway.stop()
    stage.row.holds(
        f"ready after {quantile(times, 0.5):.1f} s (median), {max(times):.1f} s at most; {wrong} first requests failed",
        quantile(times, 0.5) <= 2.0 and not wrong,
    )


@pytest.mark.row("D6")
async def test_a_fault_of_the_gateways_own_is_one_answer(stage: Stage) -> None:
    """What no check foresaw is a 500 in the usual shape, one line in the log without what was asked, and goes on."""
    await stage.start_workers(1)
    gateway = await stage.gateway(tenants={"alpha": {"isolation": "user"}})
    client = stage.client(gateway)
    # A lone surrogate is valid JSON, and no text: it can be parsed and never be encoded again.
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "\ud800"}], "user": "\udfff"}).encode()
    odd = [await client.ask(body=body) for _ in range(5)]
    shaped = all(answer.status in (200, 400, 500) and (answer.status == 200 or answer.error) for answer in odd)
    good = await load(client, 20, at_once=4)
    alive = (await gateway.readyz()).get("ready")
    stage.row.holds(
        f"statuses {sorted({answer.status for answer in odd})}, then {len(failed(good))} errors of 20",
        shaped and not failed(good) and bool(alive),
    )
