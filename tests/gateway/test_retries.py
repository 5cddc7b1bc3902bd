"""Requests that go on to another worker while their prompt is under suspicion."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

from gateway.tenant_settings import TenantSettings
from tests.gateway.builders import key_line
from tests.gateway.limits.gateways import limited_gateway
from tests.gateway.limits.test_line import Crowd, Gate
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import Exchange, ScriptedWorker, ordinary, scripted_worker, until


async def test_who_tries_a_suspects_prompt_does_not_wait_for_itself() -> None:
    """The first worker dies, the second breaks off and lives: then the prompt is a suspect, and a request with it is
    alone of its kind. The third worker is too busy for that one; the fourth must have it at once."""
    workers: list[ScriptedWorker] = []
    seen = 0

    async def script(exchange: Exchange) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            next(worker for worker in workers if exchange in worker.exchanges).die()
        elif seen == 2:
            exchange.reset()
        elif seen == 3:
            await exchange.send_json(b"{}", status="503 Service Unavailable")
        else:
            await ordinary(exchange)

    async with AsyncExitStack() as stack:
        workers += [await stack.enter_async_context(scripted_worker(script)) for _ in range(4)]
        running = await stack.enter_async_context(running_gateway(*workers, probe_seconds=60))
        assert (await running.ask()).status == 502
        assert running.gateway.attempts.retries.watching
        began = time.monotonic()
        assert (await running.ask()).status == 200
        assert time.monotonic() - began < 1.5
        assert seen == 4
        assert not running.gateway.attempts.retries.watching
        await until(running.settled)


async def test_a_poison_prompt_in_the_line_ends_two_workers_and_no_third() -> None:
    """Row A4: those that wait for room were let in before any worker had died; they are looked at again."""
    gate, workers = Gate(), list[ScriptedWorker]()

    async def script(exchange: Exchange) -> None:
        if b"poison" not in exchange.body:
            await gate.script(exchange)
            return
        next(worker for worker in workers if exchange in worker.exchanges).die()

    def dead() -> int:
        return sum(not worker.listener.is_serving() for worker in workers if worker.listener is not None)

    async with AsyncExitStack() as stack:
        workers += [await stack.enter_async_context(scripted_worker(script)) for _ in range(4)]
        tenants = {"a": TenantSettings(keys=[key_line("a-key")])}
        gateway = limited_gateway(*workers, room=1, queue_seconds=20, tenants=tenants)
        they = Crowd(await stack.enter_async_context(gateway), gate)
        good = [they.ask(f"good-{number}") for number in range(4)]
        await until(lambda: len(gate.held) == 4)
        poison = [they.ask("poison") for _ in range(6)]
        await they.line_of(6)
        for deaths in (1, 2):
            gate.release()
            await until(lambda deaths=deaths: sum(not each.up for each in they.running.gateway.fleet.workers) == deaths)
        await they.finish()
        assert {(await each).status for each in poison} <= {502, 503}
        assert [(await each).status for each in good] == [200] * 4
        assert dead() == 2
        await until(they.running.settled)
