"""Group G, who belongs to the fleet, on a running gateway: termination, readiness, agreement, restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack

from gateway.fleet import ChangeKind
from tests.gateway.builders import build_backend, running_worker
from tests.gateway.running_gateway import Running, running_gateway
from tests.gateway.scripted_worker import ScriptedWorker, scripted_worker, silent, until

PROMPTS = 16


def build_content(number: int) -> str:
    return f"conversation {number} " * 40


async def ask_all(running: Running) -> list[int]:
    """One request of each conversation; the statuses."""
    asked = [[{"role": "user", "content": build_content(number)}] for number in range(PROMPTS)]
    return [(await running.ask(messages=messages)).status for messages in asked]


def answered_by(workers: Mapping[str, ScriptedWorker]) -> dict[str, str]:
    """Who got which conversation, since the last look."""
    homes = {}
    for name, worker in workers.items():
        homes.update({exchange.asked["messages"][0]["content"]: name for exchange in worker.exchanges})
        worker.exchanges.clear()
    return homes


async def test_a_terminating_worker_gets_nothing_new_and_ends_what_it_has():
    """G-05: the request that is there runs on; from the moment of draining, all others go elsewhere."""
    async with scripted_worker() as one, scripted_worker() as other:
        async with running_gateway(one, other) as running:
            await ask_all(running)
            at_one = [text for text, name in answered_by({"one": one, "other": other}).items() if name == "one"]
            release = asyncio.Event()

            async def slow(exchange):
                await release.wait()
                await exchange.send_json()

            one.scripts = [slow]
            open_request = asyncio.create_task(running.ask(messages=[{"role": "user", "content": at_one[0]}]))
            await until(lambda: one.live == 1)
            running.gateway.fleet.drain("w1")
            assert set(await ask_all(running)) == {200}
            await until(lambda: not running.gateway.prewarmer.busy)
            assert len(one.exchanges) == 1
            release.set()
            assert (await open_request).status == 200
            await until(running.settled)


async def test_the_last_worker_drained_leaves_nobody():
    """Drained is drained: a 503 that may be tried again, rather than a request to a worker that is told to go."""
    async with scripted_worker() as only, running_gateway(only) as running:
        running.gateway.fleet.drain("w1")
        answer = await running.ask()
        assert (answer.status, answer.error["code"]) == (503, "no_backend")
        running.gateway.fleet.resume("w1")
        assert (await running.ask()).status == 200


async def test_a_joiner_takes_its_share_and_is_not_flooded():
    """G-06: cold as it is, it gets what it is home to, and of a burst no more than its queue is shorter for."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(scripted_worker()) for _ in range(4)]
        running = await stack.enter_async_context(running_gateway(*workers[:3], probe_seconds=0.05))
        await ask_all(running)
        running.gateway.fleet.add(build_backend("w4", port=workers[3].port))
        await until(lambda: running.gateway.fleet.worker("w4").up)
        await until(lambda: not running.gateway.prewarmer.busy)
        for worker in workers:
            worker.exchanges.clear()
            worker.script = silent
        burst = [
            asyncio.create_task(running.ask(messages=[{"role": "user", "content": f"new {number} " * 60}]))
            for number in range(40)
        ]
        await until(lambda: sum(worker.live for worker in workers) == 40)
        assert workers[3].live <= 2 * 40 / 4
        for task in burst:
            task.cancel()
        await asyncio.gather(*burst, return_exceptions=True)


async def test_gateways_without_a_word_between_them_agree_on_every_home():
    """G-08: workers named alike in another order, another start: each conversation goes to the same worker.

    G-11: so does a gateway that was started anew, from its first request on.
    """
    async with scripted_worker() as one, scripted_worker() as two, scripted_worker() as three:
        named = {"w1": one, "w2": two, "w3": three}
        homes = []
        for _ in range(2):
            async with running_gateway(one, two, three) as running:
                await ask_all(running)
                homes.append(answered_by(named))
        assert homes[0] == homes[1]
        assert set(homes[0].values()) == set(named)


async def test_a_worker_that_restarts_between_two_probes_is_forgotten_and_keeps_its_conversations():
    """G-18: another process at the same address. No request fails, nothing is believed of it, its keys stay."""
    async with AsyncExitStack() as stack:
        stay = await stack.enter_async_context(running_worker())
        first = await stack.enter_async_context(AsyncExitStack())
        old = await first.enter_async_context(running_worker())
        port = int(old.url.rsplit(":", 1)[1])
        ports = (int(stay.url.rsplit(":", 1)[1]), port)
        running = await stack.enter_async_context(running_gateway(*ports, probe_seconds=0.05))
        told = []
        running.gateway.fleet.on_change(lambda change: told.append((change.kind, change.worker.name)))
        assert set(await ask_all(running)) == {200}
        mine = {body["messages"][0]["content"] for body in old.bodies}
        assert mine
        router = running.gateway.serving.router("m")
        assert next(each for each in router.stats().workers if each.worker == "w2").directory_blocks > 0
        await first.aclose()
        new = await stack.enter_async_context(
            running_worker(port, metrics="process_start_time_seconds 2.0\nvllm:num_requests_waiting 0\n")
        )
        await until(lambda: (ChangeKind.RESTARTED, "w2") in told)
        blocks = [each.directory_blocks for each in router.stats().workers if each.worker == "w2"]
        assert blocks in ([], [0])
        await until(lambda: running.gateway.fleet.worker("w2").up)
        await until(lambda: not running.gateway.prewarmer.busy)
        new.bodies.clear()
        assert set(await ask_all(running)) == {200}
        assert {body["messages"][0]["content"] for body in new.bodies} == mine
