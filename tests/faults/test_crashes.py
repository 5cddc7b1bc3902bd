"""Rows A1–A4: workers that die before, within and of a request."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.faults.attempts import attempts_of, by_nonce
from tests.faults.client import failed, load, quantile
from tests.faults.modes import POISON
from tests.faults.stage import FaultWorker, Stage, until


async def die_with_requests(worker: FaultWorker, gate: asyncio.Event) -> int:
    """Kill it again and again while it holds requests that it has not begun to answer; how often."""
    kills = 0
    while not gate.is_set():
        await worker.set(mode="hang")
        await asyncio.sleep(0.15)
        await worker.kill()
        kills += 1
        worker.behaviour["mode"] = "ok"
        await worker.start()
        await asyncio.sleep(0.3)
    return kills


@pytest.mark.row("A1", smoke=True, seconds=180)
async def test_a_worker_that_dies_before_the_first_byte_costs_no_answer(stage: Stage) -> None:
    """One of four resets, closes, and is killed while it holds requests: 32 at once, streams and not."""
    workers = await stage.start_workers(4, first_seconds=0.005)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    third = stage.row.size(1000, 60)
    answers = []
    for mode in ("rst0", "fin0"):
        await workers[0].set(mode=mode)
        answers += await load(client, third)
    await workers[0].set(mode="ok")
    over = asyncio.Event()
    killing = asyncio.create_task(die_with_requests(workers[0], over))
    until_at = time.monotonic() + stage.row.size(10, 1)
    while time.monotonic() < until_at or len(answers) < 3 * third:
        answers += await load(client, third // 5)
        await asyncio.sleep(0.05)
    over.set()
    kills = await killing
    wrong = failed(answers)
    stage.row.holds(f"{len(wrong)} errors of {len(answers)}, {kills} kills", not wrong)


@pytest.mark.row("A1p", seconds=120)
async def test_a_retry_costs_a_back_off_and_no_more(stage: Stage) -> None:
    """The p99 with one of four resetting, against the same load without, in turn within the minute."""
    workers = await stage.start_workers(4, first_seconds=0.005)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    await load(client, 200)
    calm, hit = [], []
    for _ in range(3):
        await workers[0].set(mode="ok")
        await asyncio.sleep(1.5)
        calm += [answer.ttft for answer in await load(client, 200, at_once=8)]
        await workers[0].set(mode="rst0")
        hit += [answer.ttft for answer in await load(client, 200, at_once=8)]
    added = 1000 * (quantile(hit, 0.99) - quantile(calm, 0.99))
    stage.row.holds(f"p99 {added:+.0f} ms ({1000 * quantile(calm, 0.99):.0f} ms without)", added <= 60)


@pytest.mark.row("A2", smoke=True, seconds=120)
async def test_death_after_three_tokens_is_told_in_band(stage: Stage) -> None:
    """By a reset and by a close: an error event soon after, no [DONE], no second try."""
    workers = await stage.start_workers(4)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    for worker in workers:
        await worker.set(mode="rst")
    count, answers = stage.row.size(200, 12), []
    for mode in ("rst", "fin"):
        for worker in workers:
            await worker.set(mode=mode)
        for _ in range(count // 8):  # small waves: eight broken streams may take every worker out for a while
            answers += await load(client, 4, at_once=4, stream=True)
            await until(gateway.ready)
            await asyncio.sleep(0.02)
    begun = [answer for answer in answers if answer.status == 200]
    told = [a for a in begun if (a.error or {}).get("code") == "upstream_error" and not a.done and a.trouble is None]
    broke_at = {ran.nonce: ran.ended for worker in workers for ran in attempts_of(_lines(stage, worker))}
    late = [1000 * (answer.ended - broke_at[answer.nonce]) for answer in told]
    tries = by_nonce(ran for worker in workers for ran in attempts_of(_lines(stage, worker)))
    again = sum(len(tries[answer.nonce]) > 1 for answer in begun)
    bound = 100 if stage.row.full else 1000
    stage.row.holds(
        f"{len(told)} of {len(begun)} told in band, {again} retried, {max(late):.0f} ms at most",
        len(told) == len(begun) >= count // 4 and not again and max(late) <= bound,
    )


def _lines(stage: Stage, worker: FaultWorker) -> list[dict]:
    return [line for line in stage.attempts() if line["worker"] == worker.name]


async def poisoned(stage: Stage, count: int, repeats: int) -> tuple[int, int, list]:
    """One poisonous request, then repeats of it beside good ones; dead workers after each, and the good answers."""
    workers = await stage.start_workers(count, mode="poison")
    gateway = await stage.gateway()
    client = stage.client(gateway)
    await load(client, 8)
    first = await client.ask(text=POISON)
    await asyncio.sleep(0.3)  # until the dead have been noticed
    dead = sum(not worker.alive for worker in workers)
    told = [await client.ask(text=POISON, stream=number % 2 == 0) for number in range(repeats)]
    good = await load(client, 40, at_once=8)
    stage.row.note(f"first answered {first.status}, repeats {sorted({answer.status for answer in told})}")
    hints = {answer.fields.get("x-should-retry") for answer in told}
    stage.row.note(f"x-should-retry {sorted(map(str, hints))}")
    return dead, sum(not worker.alive for worker in workers), failed(good)


@pytest.mark.row("A4", smoke=True)
async def test_a_poisonous_request_ends_two_of_four_workers_at_most(stage: Stage) -> None:
    """And nothing but itself is answered with an error afterwards."""
    dead, dead_after, wrong = await poisoned(stage, 4, stage.row.size(50, 5))
    stage.row.holds(f"{dead} of 4 die of one, {dead_after} after the repeats", dead_after <= 2 and not wrong)


@pytest.mark.row("A4r")
async def test_fifty_repeats_of_a_poisonous_request_end_two_of_eight_workers_at_most(stage: Stage) -> None:
    """The same prompt is known again, and is told not to come back."""
    dead, dead_after, wrong = await poisoned(stage, 8, 50)
    stage.row.holds(f"{dead} of 8 die of one, {dead_after} after 50 repeats", dead_after <= 2 and not wrong)
