"""Probes in bad company: other workers that hang, no descriptor left, an engine that sleeps; and the only worker."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from gateway.fleet import Fleet
from gateway.probes import Prober, Probes
from gateway.worker_state import Outcome, ProbeResult, ServingFacts, State, Worker
from tests.gateway.builders import build_backend, build_cards
from tests.gateway.scripted_worker import Exchange, scripted_worker, until
from tests.gateway.test_probes import QUICK, build_backend_at, look
from tests.gateway.test_recovery import Rig
from tests.gateway.test_trials import build_rig
from tests.gateway.test_upstream_ends import no_descriptor_left

ASLEEP = b'vllm:engine_sleep_state{sleep_state="awake"} 0\n'


async def test_workers_that_hang_do_not_hold_up_the_probes_of_others() -> None:
    """More of them than an ordinary pool has connections."""
    never = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await never.wait()
        writer.close()

    async with AsyncExitStack() as stack:
        server = await asyncio.start_server(hang, "127.0.0.1", 0, backlog=256)
        port = server.sockets[0].getsockname()[1]
        well = await stack.enter_async_context(scripted_worker())
        prober = await stack.enter_async_context(Prober(3.0))
        hung = Worker(build_backend_at(f"http://127.0.0.1:{port}"))
        looks = [asyncio.create_task(prober.look(hung, cards=False)) for _ in range(110)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(2.5):
            result = await prober.look(Worker(build_backend_at(well.url)), cards=True)
        assert result is not None
        assert result.trouble is None
        for each in looks:
            each.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        never.set()
        server.close()


async def test_a_probe_without_a_descriptor_says_nothing_of_the_worker() -> None:
    """All workers would be down at once, though kept connections to them are good."""
    async with scripted_worker() as worker:
        with no_descriptor_left():
            assert await look(worker.url) is None
        result = await look(worker.url)
        assert result is not None
        assert result.trouble is None


async def test_an_engine_that_sleeps_is_not_tried() -> None:
    """Its weights may be gone; it is tried when it is awake."""
    async with build_rig() as (rig, worker):
        page = ASLEEP

        async def look_at(exchange: Exchange, path: str) -> None:
            if path == "/metrics":
                await exchange.send_json(page)
            else:
                await serve_page(exchange, path)

        serve_page, worker._look = worker._look, look_at  # type: ignore[method-assign]
        fleet = Fleet({"m": ServingFacts()})
        record = fleet.add(build_backend("w1", port=worker.port))
        fleet.probed("w1", ProbeResult(cards=build_cards("m")), 0.0)
        for _ in range(3):
            fleet.report(record, Outcome.BROKE)
        assert record.state is State.EJECTED
        async with Probes(fleet, QUICK, trials=rig.trials):
            await until(lambda: record.trouble == "asleep")
            await asyncio.sleep(0.1)
            assert not worker.trials
            page = b""
            await until(lambda: record.up)
            assert worker.trials


def test_the_only_worker_of_a_model_does_not_start_slowly() -> None:
    """There is nobody to carry what it does not take, however many workers other models have."""
    rig = Rig(count=1)
    for number in range(4):
        rig.fleet.add(build_backend(f"other{number}", models=frozenset({"n"})))
        rig.fleet.probed(f"other{number}", ProbeResult(cards=build_cards("n")), rig.now)
    rig.report("w0", Outcome.REFUSED)
    assert rig.usable == []
    rig.probe("w0")
    assert rig.bounds() == [20]


@pytest.mark.parametrize("trouble", ["asleep", "answers 503 to /health"])
def test_an_old_answer_does_not_bring_back_who_is_down_by_its_probes(trouble: str) -> None:
    """It was ejected and asked in a panic; then its probes found it unwell while the answer was on its way."""
    rig = Rig(count=1)
    rig.eject("w0")
    assert rig.usable == ["w0"]
    rig.probe("w0", result=ProbeResult(trouble=trouble))
    rig.report("w0", Outcome.ANSWERED)
    assert rig.usable == []
    rig.probe("w0")
    assert rig.usable == ["w0"]


def test_an_answer_of_one_that_hung_brings_it_back() -> None:
    """It moves again."""
    rig = Rig(count=2)
    rig.report("w0", *[Outcome.SILENT] * 3)
    assert rig.usable == ["w1"]
    rig.report("w0", Outcome.ANSWERED)
    assert rig.usable == ["w0", "w1"]


def test_an_ejected_worker_that_stays_silent_in_a_panic_hangs() -> None:
    """Row A5: a panic that went on would cost every request its first-byte timeout."""
    rig = Rig(count=1)
    rig.eject("w0")
    assert rig.usable == ["w0"]
    rig.report("w0", Outcome.SILENT)
    assert rig.usable == []
    rig.now += 1.0
    assert rig.fleet.worker("w0").standing.trial_due(rig.now)
    rig.probe("w0", trial=True)
    assert rig.usable == ["w0"]


def test_one_that_asks_to_be_spared_after_it_went_down_costs_no_look_at_each_request() -> None:
    """Its last answers come when it is known to be gone."""
    rig = Rig()
    rig.report("w0", Outcome.REFUSED)
    rig.fleet.recovery.spare(rig.fleet.worker("w0"), 1.0)
    rig.now += 2.0
    assert rig.usable == ["w1", "w2", "w3"]
    assert not rig.fleet.recovery.limited
