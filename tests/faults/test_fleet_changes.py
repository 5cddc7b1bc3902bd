"""Rows B5, B6 and A13: fleets that grow and shrink under load, workers that are drained, answers that are none."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.client import Answer, failed, load, load_while
from tests.faults.garbage import GARBAGE, MARK
from tests.faults.stage import GatewayProcess, Stage, until


async def add(gateway: GatewayProcess, stage: Stage, names: range) -> None:
    for number in names:
        worker = stage.workers[number]
        assert await gateway.tell("POST", "/workers", {"name": worker.name, "url": worker.url}) == 201


async def take_away(gateway: GatewayProcess, stage: Stage, names: range) -> None:
    """As an operator does: drain, wait until it has nothing more, remove."""
    for number in names:
        name = stage.workers[number].name
        assert await gateway.tell("POST", f"/workers/{name}/drain") == 202

        async def empty(name: str = name) -> bool:
            return await gateway.metric("homing_backend_in_flight", backend=name) == 0

        await until(empty, seconds=20)
        assert await gateway.tell("DELETE", f"/workers/{name}") == 200


@pytest.mark.row("B5", seconds=180)
async def test_a_fleet_that_grows_and_shrinks_costs_no_answer(stage: Stage) -> None:
    """Four workers, eight, three, four, under load."""
    await stage.start_workers(4, first_seconds=0.005)
    gateway = await stage.gateway()
    await stage.start_workers(4, first_seconds=0.005)
    client, running, count = stage.client(gateway), True, 5000
    traffic = asyncio.create_task(load_while(client, lambda: running, at_once=16))
    answers: list[Answer] = []
    await asyncio.sleep(2)
    await add(gateway, stage, range(4, 8))
    await asyncio.sleep(3)
    await take_away(gateway, stage, range(3, 8))
    await asyncio.sleep(2)
    await add(gateway, stage, range(3, 4))
    await asyncio.sleep(2)
    running = False
    answers += await traffic
    answers += await load(client, max(0, count - len(answers)))
    served = sum(any(line["worker"] == f"w{n}" and "begin" in line for line in stage.attempts()) for n in range(4, 8))
    wrong = failed(answers)
    stage.row.holds(f"{len(wrong)} errors of {len(answers)}, {served} of 4 newcomers served", not wrong and served == 4)


@pytest.mark.row("B6")
async def test_a_drained_worker_gets_nothing_new_and_ends_what_it_has(stage: Stage) -> None:
    """Fifty open streams: they finish, and no request goes there a second later."""
    count = stage.row.size(50, 12)
    workers = await stage.start_workers(2, tokens=15, gap_seconds=0.2)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    streams = [asyncio.create_task(client.ask(stream=True)) for _ in range(count)]

    async def all_begun() -> bool:
        return sum([(await worker.state())["live"] for worker in workers]) == count

    await until(all_begun)
    assert await gateway.tell("POST", "/workers/w0/drain") == 202
    await asyncio.sleep(0.2)
    before = (await workers[0].state())["begun"]
    late = await asyncio.gather(*(client.ask(stream=True) for _ in range(count)))
    new = (await workers[0].state())["begun"] - before
    wrong = failed([*await asyncio.gather(*streams), *late])
    stage.row.holds(f"{new} new requests, {len(wrong)} of {2 * count} not finished", not new and not wrong)


@pytest.mark.row("A13", seconds=180)
async def test_answers_that_are_none_are_never_passed_on_as_answers(stage: Stage) -> None:
    """Sixty kinds of garbage, every fifth answer of two workers: told as errors, and in nobody else's answer."""
    workers = await stage.start_workers(2, mode="garbage", share=0.2)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    answers: list[Answer] = []
    bad = 0
    for _ in range(400):
        answers += await load(client, 12, at_once=4)
        sent = [(await worker.state())["garbage_sent"] for worker in workers]
        bad = sum(sent)
        if min(sent) >= len(GARBAGE):
            break
    taken_for_good = [answer for answer in answers if answer.ok and MARK in answer.body]
    silent = [
        answer
        for answer in answers
        if not answer.ok and answer.status == 200 and answer.trouble is None and answer.error is None
    ]
    codes = sorted({answer.status for answer in answers if not answer.ok})
    stage.row.holds(
        f"{bad} garbage answers among {len(answers)}: {len(taken_for_good)} in a good one, {len(silent)} that look "
        f"complete; {len(failed(answers))} told ({', '.join(map(str, codes))})",
        min(sent) >= len(GARBAGE) and not taken_for_good and not silent,
    )
