"""Requests that go on to another worker while their prompt is under suspicion."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

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
