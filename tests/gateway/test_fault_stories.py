"""What happens when workers crash, hang, lie or ask to be spared: to their clients, and until all is well again."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

from gateway.worker_state import State
from tests.gateway.running_gateway import Answer, Running, running_gateway
from tests.gateway.scripted_worker import (
    DONE,
    Exchange,
    Script,
    ScriptedWorker,
    event,
    ordinary,
    reset_at_once,
    scripted_worker,
    silent,
    stream_then,
    until,
)

POISON = [{"role": "user", "content": "the one that kills " * 30}]


async def some_workers(stack: AsyncExitStack, count: int, script: Script = ordinary) -> list[ScriptedWorker]:
    return [await stack.enter_async_context(scripted_worker(script)) for _ in range(count)]


async def ask_different(running: Running, count: int, *, at_a_time: int = 8, **fields: Any) -> list[Answer]:
    """So many different prompts."""
    gate = asyncio.Semaphore(at_a_time)

    async def one(number: int) -> Answer:
        async with gate:
            return await running.ask(messages=[{"role": "user", "content": f"{number} {time.time()} " * 9}], **fields)

    return await asyncio.gather(*map(one, range(count)))


def tries(workers: list[ScriptedWorker]) -> int:
    return sum(len(worker.exchanges) for worker in workers)


async def test_when_everything_resets_tries_stay_few_and_all_is_well_at_once_when_it_heals() -> None:
    """Row A10: at most 1.2 tries a request, no latched breaker, and panic is told."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 4, reset_at_once)
        running = await stack.enter_async_context(running_gateway(*workers, probe_seconds=0.2))
        answers = await ask_different(running, 100)
        assert {answer.status for answer in answers} == {502}
        assert tries(workers) <= 120
        assert running.count("retries_denied_total") > 0
        fleet = running.gateway.fleet
        assert [worker.state for worker in fleet.workers] == [State.EJECTED] * 4
        assert fleet.panics("m")
        running.gateway.metrics.refresh()
        assert running.count("panic", model="m") == 1
        for worker in workers:
            worker.script = ordinary
        assert {answer.status for answer in await ask_different(running, 40)} == {200}
        await until(lambda: all(worker.up for worker in fleet.workers))
        assert not fleet.panics("m")


async def test_a_crash_of_all_is_over_soon_after_they_are_back() -> None:
    """Must-show 1: known to be down is told in 50 ms with a hint, and nobody's prompt stays quarantined."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 4)
        running = await stack.enter_async_context(running_gateway(*workers, probe_seconds=0.2))
        assert (await running.ask(messages=POISON)).status == 200
        for worker in workers:
            worker.die()
        await ask_different(running, 20)
        await running.ask(messages=POISON)
        took = []
        for _ in range(5):
            began = time.monotonic()
            answer = await running.ask(messages=POISON)
            took.append(time.monotonic() - began)
            assert (answer.status, answer.error["code"], answer.fields["retry-after"]) == (503, "no_backend", "1")
        assert min(took) < 0.05
        for worker in workers:
            await worker.live_again()
        healed = time.monotonic()
        await until(lambda: all(worker.up for worker in running.gateway.fleet.workers))
        assert {answer.status for answer in await ask_different(running, 20)} == {200}
        assert (await running.ask(messages=POISON)).status == 200
        assert time.monotonic() - healed < 2.0


def poisonous(workers: list[ScriptedWorker]) -> None:
    """All of them die of one prompt."""

    def script_of(worker: ScriptedWorker) -> Script:
        async def script(exchange: Exchange) -> None:
            if b"the one that kills" in exchange.body:
                worker.die()
            else:
                await ordinary(exchange)

        return script

    for worker in workers:
        worker.script = script_of(worker)


def dead(running: Running) -> int:
    return sum(worker.state is State.DOWN for worker in running.gateway.fleet.workers)


async def test_a_poison_prompt_ends_two_workers_and_no_third() -> None:
    """Row A4: one request, then fifty repeats at once; others are served all the while."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 8)
        poisonous(workers)
        running = await stack.enter_async_context(running_gateway(*workers, probe_seconds=0.2))
        first = await running.ask(messages=POISON)
        assert first.status == 502
        repeats = await asyncio.gather(*(running.ask(messages=POISON, stream=n % 2 == 0) for n in range(50)))
        assert {(each.status, each.error["code"], each.fields["x-should-retry"]) for each in repeats} == {
            (503, "quarantined", "false")
        }
        assert {answer.status for answer in await ask_different(running, 30)} == {200}
        assert dead(running) == 2
        assert running.count("quarantined_prompts_total") == 1
        assert running.count("quarantined_requests_total", tenant="acme") == 50
        assert (await running.ask(messages=POISON, key="shared-key")).status == 502, (
            "another tenant's is another prompt"
        )


async def test_several_poison_requests_at_once_end_two_workers() -> None:
    """Row A4: those that died with the first wait for the one that tries again."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 8)
        poisonous(workers)
        running = await stack.enter_async_context(running_gateway(*workers, probe_seconds=0.2))
        answers = await asyncio.gather(*(running.ask(messages=POISON) for _ in range(6)))
        assert {answer.status for answer in answers} <= {502, 503}
        assert dead(running) <= 2


async def test_a_prompt_that_kills_in_mid_stream_ends_two_workers() -> None:
    """A death after the first byte counts too, though it is never tried elsewhere."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 6)

        def dies_late(worker: ScriptedWorker) -> Script:
            async def end(_: Exchange) -> None:
                worker.die()

            return stream_then(3, end)

        for worker in workers:
            worker.script = dies_late(worker)
        running = await stack.enter_async_context(running_gateway(*workers, probe_seconds=0.2))
        seen = []
        for _ in range(6):
            answer = await running.ask(messages=POISON, stream=True)
            seen.append(answer.status)
            await asyncio.sleep(0.02)
        assert seen == [200, 200, 503, 503, 503, 503]
        assert dead(running) == 2


async def test_a_worker_that_hangs_behind_good_probes_is_out_after_the_first_wave() -> None:
    """Row A5: the first wave is told in time, the second sends it nothing, and a trial brings it back."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 4)
        workers[0].script = silent
        running = await stack.enter_async_context(
            running_gateway(*workers, policy="round_robin", first_byte=0.4, probe_seconds=0.1)
        )
        first = await ask_different(running, 24, at_a_time=24, stream=True)
        assert sorted({answer.status for answer in first}) == [200, 504]
        hung = running.gateway.fleet.worker("w1")
        assert (hung.state, hung.hung) == (State.DOWN, True)
        before = len(workers[0].exchanges)
        second = await ask_different(running, 24, at_a_time=24, stream=True)
        assert {answer.status for answer in second} == {200}
        assert len(workers[0].exchanges) == before
        workers[0].script = ordinary
        # A trial that was under way when it healed is given up first.
        for exchange in workers[0].trials:
            exchange.reset()
        await until(lambda: hung.up, 20.0)
        assert not hung.hung
        assert running.count("trials_total", outcome="good") == 1
        assert running.count("backend_ejections_total", reason="silent") == 1


async def test_one_that_resets_is_left_out_and_back_soon_after_it_is_well() -> None:
    """Rows A1, A9 and A12: no client sees it, it is asked three times, and trials bring it back."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 4)
        workers[0].script = reset_at_once
        running = await stack.enter_async_context(running_gateway(*workers, policy="round_robin", probe_seconds=0.1))
        assert {answer.status for answer in await ask_different(running, 40, at_a_time=4)} == {200}
        worker = running.gateway.fleet.worker("w1")
        await until(lambda: len(workers[0].trials) >= 2)
        assert worker.state is State.EJECTED
        assert len(workers[0].exchanges) <= 6
        workers[0].script = ordinary
        await until(lambda: worker.up)
        assert {answer.status for answer in await ask_different(running, 8, at_a_time=1)} == {200}
        assert worker.standing.failures_in_a_row == 0


async def test_a_stream_that_stalls_takes_its_worker_out() -> None:
    """Row A6: an error event in time; three of them in a row, and nothing more is sent there."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 2)
        workers[0].script = stream_then(3, silent)
        running = await stack.enter_async_context(
            running_gateway(*workers, policy="round_robin", idle=0.2, probe_seconds=0.1)
        )
        answers = await ask_different(running, 8, stream=True)
        cut = [answer for answer in answers if not answer.body.endswith(DONE)]
        assert len(cut) == len(workers[0].exchanges)
        assert all(answer.body.startswith(event("t0")) and b"upstream_timeout" in answer.body for answer in cut)
        assert not running.gateway.fleet.worker("w1").up
        before = len(workers[0].exchanges)
        assert all(answer.body.endswith(DONE) for answer in await ask_different(running, 8, stream=True))
        assert len(workers[0].exchanges) == before


async def busy(exchange: Exchange) -> None:
    await exchange.send_json(
        b'{"error":{"message":"busy"}}', status="429 Too Many Requests", fields="retry-after: 1\r\n"
    )


async def test_a_worker_that_asks_to_be_spared_is_and_comes_back() -> None:
    """Case B-20: skipped for the time it named, and used again after; the mark goes by itself."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 2)
        workers[0].scripts = [busy]
        running = await stack.enter_async_context(running_gateway(*workers, policy="round_robin", probe_seconds=60))
        assert {answer.status for answer in await ask_different(running, 10, at_a_time=1)} == {200}
        assert len(workers[0].exchanges) == 1
        assert running.count("upstream_retries_total", reason="overloaded") == 1
        await until(lambda: bool(running.gateway.fleet.view("m").workers[0].ready))
        assert {answer.status for answer in await ask_different(running, 4, at_a_time=1)} == {200}
        assert len(workers[0].exchanges) == 3


async def test_the_only_worker_is_never_spared() -> None:
    """Case B-20: there is nobody else."""
    async with scripted_worker(busy) as worker, running_gateway(worker) as running:
        assert (await running.ask()).status == 429
        worker.script = ordinary
        assert (await running.ask()).status == 200


async def test_at_no_moment_are_two_attempts_of_one_request_alive() -> None:
    """Row A3: whatever fails, the old connection is closed before another worker hears of the request."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 3, reset_at_once)
        workers[2].script = ordinary
        running = await stack.enter_async_context(running_gateway(*workers, policy="round_robin", probe_seconds=0.1))
        await asyncio.gather(*(running.ask() for _ in range(60)))
        spans: dict[str, list[tuple[float, float]]] = {}
        for worker in workers:
            for each in worker.exchanges:
                ended_at = each.ended_at if each.ended_at is not None else math.inf
                spans.setdefault(each.field("x-request-id") or "", []).append((each.began_at, ended_at))
        assert max(map(len, spans.values())) == 2, "nothing was tried again"
        for ran in map(sorted, spans.values()):
            assert all(earlier[1] <= later[0] for earlier, later in pairwise(ran))
            assert len(ran) <= 2


async def test_a_worker_that_drains_is_cut_off_at_the_deadline() -> None:
    """Row B6: streams may end in their own time until then, and get an error event at it."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 1, stream_then(2, silent))
        running = await stack.enter_async_context(running_gateway(*workers, drain=0.3))
        asked = asyncio.create_task(running.ask(stream=True))
        await until(lambda: workers[0].live == 1)
        running.gateway.fleet.drain("w1")
        answer = await asked
        assert answer.body.startswith(event("t0") + event("t1") + b'data: {"error":')
        assert b"gateway_shutdown" in answer.body
        assert running.gateway.fleet.worker("w1").standing.failures_in_a_row == 0
        await until(running.settled)


async def test_a_worker_that_is_resumed_keeps_its_streams() -> None:
    """The deadline is of the drain."""
    async with AsyncExitStack() as stack:
        workers = await some_workers(stack, 1, stream_then(2, silent))
        running = await stack.enter_async_context(running_gateway(*workers, drain=0.15, idle=0.6))
        asked = asyncio.create_task(running.ask(stream=True))
        await until(lambda: workers[0].live == 1)
        running.gateway.fleet.drain("w1")
        running.gateway.fleet.resume("w1")
        assert b"upstream_timeout" in (await asked).body
