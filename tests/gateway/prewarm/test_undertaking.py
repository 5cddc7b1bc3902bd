"""One worker's warm-up among real requests: what it leaves to them, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from gateway.prewarm.store import KeptPrompt
from gateway.settings import Prewarm
from gateway.worker_metrics import WorkerFigures
from gateway.worker_state import ProbeResult
from tests.gateway.builders import build_backend, build_healthy
from tests.gateway.prewarm.test_prewarmer import after, ask_all, ask_until_at, ended, joined, not_found
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import Exchange, ScriptedWorker, ordinary, scripted_worker, silent, until


def chats(worker: ScriptedWorker) -> list[str]:
    """What a worker was asked, without pulls."""
    return [one.asked["messages"][0]["content"] for one in worker.exchanges if one.head.startswith(b"POST /v1/chat")]


async def test_a_warm_up_that_takes_longer_than_thought_makes_room_too():
    """A slow or hanging worker: its rate was not known, the estimate is long over, and somebody waits."""
    async with scripted_worker() as joiner:
        joiner.scripts = [not_found, silent, after(lambda: warming.client_gone_at is not None)]
        async with joined(joiner) as running:
            await until(lambda: joiner.live == 1 and len(joiner.exchanges) == 2)
            warming = joiner.exchanges[-1]
            await asyncio.sleep(1.0)
            asked = time.monotonic()
            await ask_until_at(running, joiner)
            assert warming.client_gone_at - asked < 1.5
            await until(running.settled)


@pytest.mark.parametrize(("bound", "warmed"), [(1, False), (2, True)])
async def test_the_last_place_at_a_worker_is_not_taken(bound: int, warmed: bool):
    """A request that finds its home full goes elsewhere, or nowhere: that costs more than a cold cache."""
    async with scripted_worker() as joiner, scripted_worker() as old:
        async with running_gateway(old, probe_seconds=0.05, prewarm=Prewarm(deadline_seconds=1.0)) as running:
            await ask_all(running)
            running.gateway.fleet.add(build_backend("new", port=joiner.port, max_in_flight=bound))
            await until(lambda: running.gateway.fleet.worker("new").up)
            await until(lambda: ended(running))
            assert bool(chats(joiner)) is warmed


async def test_a_worker_that_is_slower_than_thought_has_given_more():
    """The budget is of its seconds, not of our guesses: a dozen that take 0.4 s each are too many for 1 s."""
    async with scripted_worker() as joiner:
        joiner.scripts = [not_found]
        joiner.script = slowly
        async with joined(joiner, 24, budget_seconds=1.0) as running:
            await until(lambda: ended(running))
            assert len(chats(joiner)) in (2, 3)
            assert running.count("prewarm_seconds_total") > 1.0
            assert running.count("prewarm_skipped_total", reason="budget") > 0


async def test_of_several_replicas_each_spends_its_part():
    """They warm the same worker, and the budget is of that worker's time."""
    async with scripted_worker() as joiner:
        joiner.scripts = [not_found]
        joiner.script = slowly
        async with joined(joiner, 24, budget_seconds=1.0) as running:
            prewarmer = running.gateway.prewarmer
            prewarmer._tools = prewarmer._tools._replace(replicas=lambda: 5)
            running.gateway.fleet.drain("new")
            running.gateway.fleet.resume("new")
            await until(lambda: ended(running))
            assert len(chats(joiner)) == 1


async def test_what_is_interrupted_three_times_is_let_be():
    """Others come first each time; a worker is not made to begin for ever."""
    async with scripted_worker() as joiner:
        joiner.scripts = [not_found]
        joiner.script = silent
        async with joined(joiner, 6) as running:
            while not ended(running):
                await until(lambda: joiner.live == 1 or ended(running))
                joiner.waiting = 3
                await until(lambda: joiner.live == 0)
                joiner.waiting = 0
            tries = [chats(joiner).count(content) for content in set(chats(joiner))]
            assert set(tries) == {3}
            assert running.count("prewarm_skipped_total", reason="yielded") == len(tries)


async def test_what_a_worker_held_that_is_down_is_not_what_another_holds():
    """Nobody knows whether it comes back with it; the joiner is not filled for all that."""
    async with scripted_worker() as joiner, scripted_worker() as old:
        async with running_gateway(old, probe_seconds=0.05) as running:
            await ask_all(running)
            old.healthy = False
            await until(lambda: not running.gateway.fleet.worker("w1").up)
            running.gateway.fleet.add(build_backend("new", port=joiner.port))
            await until(lambda: ended(running))
            assert chats(joiner) == []


async def test_nothing_is_believed_of_a_worker_that_left_meanwhile():
    """It may come back with an empty cache, under the same name."""
    async with scripted_worker() as first, scripted_worker() as second:
        async with running_gateway(first, second, probe_seconds=0.05) as running:
            await ask_all(running)
            second.script = slowly
            running.gateway.fleet.drain("w1")
            await until(lambda: second.live == 1 and b"/chat/" in second.exchanges[-1].head)
            running.gateway.fleet.remove("w2")
            await until(lambda: ended(running, "w1"))
            assert list(running.gateway.serving.router("m")._members.states) == ["w1"]


async def test_a_pull_that_hangs_ends_at_the_deadline():
    """Also one that nobody answers."""
    async with scripted_worker(silent) as joiner, joined(joiner, deadline_seconds=1.0) as running:
        began = time.monotonic()
        await until(lambda: ended(running))
        assert time.monotonic() - began < 3.0
        assert joiner.exchanges[0].head.startswith(b"POST /v1/cache/pull")


async def slowly(exchange: Exchange) -> None:
    await asyncio.sleep(0.4)
    await ordinary(exchange)


async def test_when_it_has_ended_it_holds_no_prompt():
    """What the store lets go is gone, however much was left undone."""
    async with scripted_worker(waiting=3) as joiner, joined(joiner, deadline_seconds=0.6) as running:
        await until(lambda: ended(running))
        assert running.gateway.prewarmer.describe("new")["left_prompts"] > 0
        running.gateway.prewarmer.store.clear()
        await asyncio.sleep(0)
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, KeptPrompt) and b"CANARY 0" in one.body]


async def test_nothing_is_sent_to_where_a_worker_was():
    """Another took its name while a prompt waited its turn."""
    async with scripted_worker() as first, scripted_worker() as second, scripted_worker() as third:
        async with running_gateway(first, second, probe_seconds=0.05) as running:
            await ask_all(running)
            fleet, released = running.gateway.fleet, asyncio.Event()
            second.script = after(released.is_set)
            waiting = asyncio.create_task(ask_until_at(running, second))
            await until(lambda: fleet.worker("w2").in_flight == 1)
            before = len(second.exchanges)
            fleet.drain("w1")
            await asyncio.sleep(0.8)
            assert not ended(running, "w1")
            fleet.remove("w2")
            fleet.add(build_backend("w2", port=third.port))
            await until(lambda: ended(running, "w1"))
            released.set()
            await waiting
            assert len(second.exchanges) == before


async def test_a_restart_is_made_good_when_the_worker_is_there_again():
    """It answered a probe before it could be given anything; and what did not begin says that it has ended."""
    async with scripted_worker() as worker, scripted_worker() as other:
        async with running_gateway(worker, other, probe_seconds=60) as running:
            await ask_all(running)
            fleet, prewarmer = running.gateway.fleet, running.gateway.prewarmer
            for start in (1.0, 2.0):
                figures = WorkerFigures(start_seconds=start)
                trouble = None if start == 1.0 else "loading"
                fleet.probed("w1", ProbeResult(trouble=trouble, cards=build_healthy().cards, figures=figures), 0.0)
            assert prewarmer.describe("w1")["ended"]
            fleet.probed("w1", build_healthy(figures=figures), 1.0)
            assert prewarmer.describe("w1")["why"] == "restart"
            at_first = set(chats(worker))
            worker.exchanges.clear()
            await until(lambda: ended(running, "w1"))
            assert set(chats(worker)) == at_first != set()
