"""Rows E12–E14: more than the workers can take, clients that try again, and a neighbour who takes all he can."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from tests.faults.client import Answer, Client, failed, quantile
from tests.faults.stage import Stage

PLACES = 4
FIRST_SECONDS = 0.25
CAPACITY = 2 * PLACES / FIRST_SECONDS
"""Requests a second of two workers."""


async def offer(client: Client, rate: float, seconds: float, **fields: object) -> list[Answer]:
    """Requests at a fixed rate, whether or not those before have been answered."""
    began, tasks = time.monotonic(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        tasks.append(asyncio.create_task(client.ask(**fields)))
    return await asyncio.gather(*tasks)


def goodput(answers: Sequence[Answer], seconds: float) -> float:
    return sum(answer.ok for answer in answers) / seconds


async def start(stage: Stage) -> Client:
    await stage.start_workers(2, first_seconds=FIRST_SECONDS)
    gateway = await stage.gateway(models={"m": {"max_in_flight": PLACES}}, timeouts={"queue_seconds": 1.0})
    return stage.client(gateway)


@pytest.mark.row("E12", seconds=180)
async def test_overload_keeps_the_workers_busy_and_tells_the_rest_when_to_come_back(stage: Stage) -> None:
    """Five times what the workers can take, for eight seconds."""
    client = await start(stage)
    peak = goodput(await offer(client, CAPACITY * 0.9, 6), 6) / 0.9
    began = time.monotonic()
    answers = await offer(client, CAPACITY * 5, 8)
    took = max(answer.ended for answer in answers if answer.ok) - began
    share = goodput(answers, took) / min(peak, CAPACITY)
    rejected = failed(answers)
    hinted = sum("retry-after" in answer.fields for answer in rejected)
    prompt_ms = 1000 * quantile([answer.seconds for answer in rejected], 0.99)
    longest_ms = 1000 * max(answer.seconds for answer in rejected)
    sent = {line.get("nonce") for line in stage.attempts()} & {answer.nonce for answer in rejected}
    late = sum(answer.trouble is not None for answer in answers)
    stage.row.holds(
        f"goodput {share:.2f} of peak; {hinted} of {len(rejected)} rejections say when to come back, "
        f"p99 after {prompt_ms:.0f} ms, {longest_ms:.0f} ms at most; {len(sent)} of them sent to a worker; "
        f"{late} unanswered",
        share >= 0.9 and hinted == len(rejected) and prompt_ms <= 50 and not sent and not late,
    )


@pytest.mark.row("E13", seconds=180)
async def test_clients_that_try_again_do_not_keep_an_outage_going(stage: Stage) -> None:
    """Ten seconds without workers, every request tried three times at once; then the share that is answered."""
    client = await start(stage)
    for worker in stage.workers:
        await worker.set(mode="rst0")

    async def persistent() -> Answer:
        for _ in range(3):
            answer = await client.ask()
            if answer.ok:
                return answer
        return answer

    began, tasks = time.monotonic(), []
    rate, outage = CAPACITY * 0.6, 6.0
    healed = False
    while time.monotonic() - began < outage + 12:
        if not healed and time.monotonic() - began > outage:
            healed = True
            for worker in stage.workers:
                await worker.set(mode="ok")
        tasks.append(asyncio.create_task(persistent()))
        await asyncio.sleep(1 / rate)
    answers = await asyncio.gather(*tasks)
    settled = [answer for answer in answers if answer.began - began > outage + 5]
    share = 1 - len(failed(settled)) / len(settled)
    stage.row.holds(f"{share:.1%} answered from 5 s after the outage on", share >= 0.95)


@pytest.mark.row("E14", seconds=240)
async def test_a_neighbour_who_takes_all_he_can_slows_nobody_much(stage: Stage) -> None:
    """A tenant at a tenth of the capacity beside one that asks for ten times as much as there is."""
    await start(stage)
    gateway = await stage.gateway(models={"m": {"max_in_flight": PLACES}}, timeouts={"queue_seconds": 5.0})
    victim, aggressor = stage.client(gateway, "alpha"), stage.client(gateway, "beta")
    alone = await offer(victim, CAPACITY / 10, 10, stream=True)
    pushing = asyncio.create_task(offer(aggressor, CAPACITY * 10, 13, stream=True))
    await asyncio.sleep(1.0)
    beside = await offer(victim, CAPACITY / 10, 12, stream=True)
    await pushing
    share = 1 - len(failed(beside)) / len(beside)
    ratio = quantile([a.ttft for a in beside], 0.99) / quantile([a.ttft for a in alone], 0.99)
    stage.row.holds(f"{share:.1%} answered, TTFT p99 {ratio:.2f} x alone", share >= 0.99 and ratio <= 2.0)
