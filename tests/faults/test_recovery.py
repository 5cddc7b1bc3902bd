"""Rows A8–A12: workers that flap, are all gone, and come back: how soon, and what trying costs."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.faults.client import Client, failed, load, load_while
from tests.faults.stage import GatewayProcess, Stage, until


async def begun(stage: Stage) -> int:
    """Attempts that all workers together have begun."""
    return sum(state["begun"] for state in await asyncio.gather(*(worker.state() for worker in stage.workers)))


@pytest.mark.row("A8", seconds=180)
async def test_a_flapping_worker_costs_no_answer(stage: Stage) -> None:
    """A second up, a second down, by turns refusing, resetting and unhealthy."""
    workers = await stage.start_workers(4, first_seconds=0.01)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    count, over = 3000, asyncio.Event()

    async def flap() -> int:
        turns = 0
        while not over.is_set():
            await workers[0].set(mode=("rst0", "fin0")[turns % 2], pages=("ok", "down")[turns // 2 % 2])
            await asyncio.sleep(1.0)
            await workers[0].set(mode="ok", pages="ok")
            await asyncio.sleep(1.0)
            turns += 1
        return turns

    flapping = asyncio.create_task(flap())
    answers = []
    while len(answers) < count or time.monotonic() - answers[0].began < 20:
        answers += await load(client, 250, at_once=16)
        await asyncio.sleep(0.5)
    over.set()
    wrong = failed(answers)
    stage.row.holds(f"{len(wrong)} errors of {len(answers)} over {await flapping} turns", not wrong)


@pytest.mark.row("A9")
async def test_a_worker_that_is_back_gets_its_share_again(stage: Stage) -> None:
    """Resets for ten seconds, then well: the first trial and the full share."""
    workers = await stage.start_workers(4, first_seconds=0.01)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    running = True
    traffic = asyncio.create_task(load_while(client, lambda: running, at_once=8))
    await workers[0].set(mode="rst0")
    await asyncio.sleep(10)
    before = (await workers[0].state())["begun"]
    await workers[0].set(mode="ok")

    async def tried() -> bool:
        return (await workers[0].state())["begun"] > before

    first = await until(tried, seconds=15)
    await asyncio.sleep(max(0.0, 5.0 - first))
    early = await asyncio.gather(*(worker.state() for worker in workers))
    await asyncio.sleep(3)
    late = await asyncio.gather(*(worker.state() for worker in workers))
    running = False
    wrong = failed(await traffic)
    counts = [one["begun"] - other["begun"] for one, other in zip(late, early, strict=True)]
    share = 4 * counts[0] / sum(counts)
    stage.row.holds(
        f"first trial after {first:.1f} s, {share:.2f} of its share after 5 s, {len(wrong)} errors",
        first <= 2.5 and share >= 0.7 and not wrong,
    )


async def healed_after(client: Client) -> tuple[float, int]:
    """Poll until twenty in a row are well; when the first of them was asked, and how many errors came before it."""
    began, errors, first_good = time.monotonic(), 0, 0.0
    good = 0
    while good < 20:
        answer = await client.ask()
        if answer.ok:
            first_good = first_good if good else answer.began - began
            good += 1
        else:
            good, errors = 0, errors + 1
        assert time.monotonic() - began < 60, f"not healed: {answer}"
        await asyncio.sleep(0.1 if good < 2 else 0.02)
    return first_good, errors


@pytest.mark.row("A10", smoke=True)
async def test_all_workers_crash_and_heal(stage: Stage) -> None:
    """All are killed under load and come back: how soon every answer is well."""
    workers = await stage.start_workers(4)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    await load(client, 40)
    for worker in workers:
        await worker.kill()
    await load(client, 200)
    await asyncio.sleep(0.5)
    told = [await client.ask() for _ in range(10)]
    known_down = max(answer.seconds for answer in told)
    hints = all(answer.status == 503 and "retry-after" in answer.fields for answer in told)
    await asyncio.gather(*(worker.start() for worker in workers))
    healed, errors = await healed_after(client)
    stage.row.holds(
        f"all OK {healed:.1f} s after, {errors} errors to a poller; while down 503 and Retry-After "
        f"{'always' if hints else 'not always'}, {1000 * known_down:.0f} ms at most",
        healed <= 2.0 and hints and known_down <= (0.05 if stage.row.full else 0.5),
    )


@pytest.mark.row("A10r")
async def test_all_workers_reset_and_heal(stage: Stage) -> None:
    """No breaker stays open when all of them had to be taken for ill."""
    workers = await stage.start_workers(4, mode="rst0")
    gateway = await stage.gateway()
    client = stage.client(gateway)
    over = time.monotonic() + 6
    answers = await load_while(client, lambda: time.monotonic() < over, at_once=4)
    await asyncio.gather(*(worker.set(mode="ok") for worker in workers))
    healed, errors = await healed_after(client)
    stage.row.holds(
        f"all OK {healed:.1f} s after healing ({errors} errors to a poller); {len(answers)} told while ill",
        healed <= 2.0 and len(failed(answers)) == len(answers),
    )


async def tries_per_request(stage: Stage, gateway: GatewayProcess, mode: str) -> float:
    client = stage.client(gateway)
    for worker in stage.workers:
        await worker.set(mode=mode)
    before = await begun(stage)
    answers = await load(client, stage.row.size(1000, 200), at_once=32)
    return (await begun(stage) - before) / len(answers)


@pytest.mark.row("A10t")
async def test_trying_costs_little_when_everything_fails(stage: Stage) -> None:
    """Attempts a request that workers see, by how all of them fail."""
    await stage.start_workers(4)
    gateway = await stage.gateway()
    await load(stage.client(gateway), 40)
    rates = {mode: await tries_per_request(stage, gateway, mode) for mode in ("rst0", "fin0", "error")}
    told = ", ".join(f"{mode} {rate:.2f}" for mode, rate in rates.items())
    stage.row.holds(f"tries a request: {told}", max(rates.values()) <= 1.2)


@pytest.mark.row("A11")
async def test_retries_stay_within_their_budget(stage: Stage) -> None:
    """Every worker resets every second request: retries over requests."""
    await stage.start_workers(4, share=0.5, first_seconds=0.01)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    await load(client, 100, at_once=32)
    for worker in stage.workers:
        await worker.set(mode="rst0")
    before, count = await begun(stage), 2000
    answers = await load(client, count, at_once=32)
    begun_now = await begun(stage) - before
    asked_workers = len(answers) - sum((a.error or {}).get("code") == "no_backend" for a in answers)
    ratio = (begun_now - asked_workers) / count
    most = max(len(tries) for tries in _tries(stage).values())
    stage.row.holds(f"retries {ratio:.3f} of requests, {most} attempts at one at most", ratio <= 0.22 and most <= 3)


def _tries(stage: Stage) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for line in stage.attempts():
        if "begin" in line:
            found.setdefault(line["nonce"], []).append(line)
    return found


@pytest.mark.row("A12")
async def test_a_worker_that_is_well_again_is_never_left_out(stage: Stage) -> None:
    """From many ways of failing, twenty times: how long until it serves again."""
    workers = await stage.start_workers(2, first_seconds=0.005)
    gateway = await stage.gateway()
    client = stage.client(gateway)
    slowest, wrong = 0.0, 0
    ways = [{"mode": "rst0"}, {"mode": "fin0"}, {"pages": "down"}, {"mode": "error"}, {"mode": "garbage"}]
    for turn in range(20):
        await workers[0].set(**ways[turn % len(ways)])
        await load(client, 30, at_once=8)
        await workers[0].set(mode="ok", pages="ok")
        before = (await workers[0].state())["begun"]

        async def back(before: int = before) -> bool:
            nonlocal wrong
            wrong += len(failed(await load(client, 10, at_once=10)))
            return (await workers[0].state())["begun"] > before

        slowest = max(slowest, await until(back, seconds=30))
    stage.row.holds(f"back after {slowest:.1f} s at most, {wrong} errors meanwhile", slowest <= 3.0 and not wrong)
