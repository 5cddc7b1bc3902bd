"""The line when workers fail: nobody waits for a worker that is gone, and a request that another broke off may wait."""

from __future__ import annotations

import asyncio
import time

from gateway.tenant_settings import TenantSettings
from gateway.worker_state import Outcome
from tests.gateway.builders import key_line
from tests.gateway.limits.gateways import limited_gateway
from tests.gateway.limits.test_line import Crowd, Gate, crowd
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import reset_at_once, scripted_worker, until


async def test_when_the_last_worker_is_gone_nobody_waits_for_it():
    """Row A10: those in the line and those that come are told at once, not at their deadlines."""
    async with crowd(room=1, queue_seconds=30) as they:
        they.ask("first")
        await until(lambda: len(they.gate.held) == 1)
        waiting = [they.ask("second"), they.ask("third")]
        await they.line_of(2)
        gateway = they.running.gateway
        gateway.probes._tasks["w1"].cancel()
        gateway.fleet.report(gateway.fleet.worker("w1"), Outcome.REFUSED)
        began = time.monotonic()
        answers = [await each for each in (*waiting, they.ask("fourth"))]
        assert [answer.status for answer in answers] == [503] * 3
        assert {answer.fields["retry-after"] for answer in answers} == {"1"}
        assert "is up" in answers[0].error["message"]
        assert time.monotonic() - began < 5
        assert they.waiting == 0
        await they.finish()
        await until(they.running.settled)


async def test_a_request_that_one_broke_off_waits_for_another_that_is_full():
    """Row A1 at full load: the other would have had room a moment later."""
    gate = Gate()
    tenants = {"a": TenantSettings(keys=[key_line("a-key")])}
    async with scripted_worker(gate.script) as good, scripted_worker(gate.script) as bad:
        async with limited_gateway(good, bad, room=1, tenants=tenants) as running:
            they = Crowd(running, gate)
            asked = [they.ask("first"), they.ask("second")]
            await until(lambda: len(gate.held) == 2)
            broken = next(each for each in gate.held if each in bad.exchanges)
            gate.held.remove(broken)
            bad.script = reset_at_once
            broken.reset()
            await they.line_of(1)
            await they.finish()
            assert [(await each).status for each in asked] == [200, 200]
            assert len(bad.exchanges) == 1
            await until(running.settled)


async def test_who_cannot_use_the_room_lets_others_have_it():
    """A request that a worker broke off does not go back there; who stands behind it in the line may."""
    gate = Gate()
    tenants = {"a": TenantSettings(keys=[key_line("a-key")])}
    async with scripted_worker(gate.script) as good, scripted_worker(gate.script) as bad:
        async with limited_gateway(good, bad, room=1, queue_seconds=20, tenants=tenants) as running:
            they = Crowd(running, gate)
            asked = [they.ask("first"), they.ask("second")]
            await until(lambda: len(gate.held) == 2)
            broken = next(each for each in gate.held if each in bad.exchanges)
            gate.held.remove(broken)
            broken.reset()
            await they.line_of(1)
            asked.append(they.ask("third"))
            await until(lambda: len(bad.exchanges) == 2)
            assert gate.seen[-1] == "third"
            assert they.waiting == 1
            await asyncio.sleep(0.12)  # the line looks again, and finds nothing
            assert len(bad.exchanges) == 2
            await they.finish()
            assert [(await each).status for each in asked] == [200] * 3
            await until(running.settled)


async def test_who_waits_when_the_gateways_grace_is_over_is_told_so():
    """Row D2: behind a stream that is cut off then, without ever going to a worker."""
    async with crowd(room=1, queue_seconds=30) as they:
        asked = [they.ask("first", stream=True)]
        await until(lambda: len(they.gate.held) == 1)
        asked += [they.ask("second"), they.ask("third", stream=True)]
        await they.line_of(2)
        began = time.monotonic()
        await they.running.gateway.server.stop(0.1)
        assert time.monotonic() - began < 2.1
        assert [(await each).error["code"] for each in asked] == ["gateway_shutdown"] * 3
        assert they.gate.seen == ["first"]


async def test_who_is_held_for_a_first_worker_is_told_so_too():
    """Row D2: he would have been cut off without a word, and the exit late."""
    async with scripted_worker(healthy=False) as worker, running_gateway(worker, hold=30.0) as running:
        asked = asyncio.create_task(running.ask())
        await until(lambda: running.count("queued_requests", model="m") == 1)
        began = time.monotonic()
        await running.gateway.server.stop(0.1)
        assert time.monotonic() - began < 2.1
        assert (await asked).error["code"] == "gateway_shutdown"
