"""The line in a running gateway: who waits, who goes first, who is sent away; nothing expired goes upstream."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gateway.limit_settings import TenantLimits
from gateway.tenant_settings import TenantSettings
from tests.gateway.builders import key_line
from tests.gateway.limits.gateways import limited_gateway
from tests.gateway.running_gateway import Answer, Running, build_request
from tests.gateway.scripted_worker import Exchange, ordinary, scripted_worker, until


@dataclass
class Gate:
    """Workers that hold every request until it is let go, in the order it came."""

    held: list[Exchange] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    events: dict[int, asyncio.Event] = field(default_factory=dict)

    async def script(self, exchange: Exchange) -> None:
        event = self.events[id(exchange)] = asyncio.Event()
        self.held.append(exchange)
        self.seen.append(exchange.asked["messages"][0]["content"].split(" ")[0])
        await event.wait()
        await ordinary(exchange)

    def release(self) -> None:
        """Answer the oldest."""
        exchange = self.held.pop(0)
        self.events[id(exchange)].set()


@dataclass
class Crowd:
    """A gateway before one gated worker with room for `room`, and the clients that ask it."""

    running: Running
    gate: Gate
    tasks: list[asyncio.Task[Answer]] = field(default_factory=list)

    def ask(self, name: str, key: str = "a-key", **fields) -> asyncio.Task[Answer]:
        text = [{"role": "user", "content": f"{name} " + "word " * 20}]
        task = asyncio.create_task(self.running.send(build_request(key=key, messages=text, **fields)))
        self.tasks.append(task)
        return task

    @property
    def waiting(self) -> int:
        return self.running.gateway.line.waiting

    async def line_of(self, count: int) -> None:
        await until(lambda: self.waiting == count)

    async def finish(self) -> None:
        """Answer whatever comes until nobody asks any more."""
        while not all(task.done() for task in self.tasks):
            while self.gate.held:
                self.gate.release()
            await asyncio.sleep(0.005)


@asynccontextmanager
async def crowd(
    room: int = 1, queue_seconds: float = 5.0, workers: int = 1, **tenants: TenantSettings
) -> AsyncIterator[Crowd]:
    gate = Gate()
    async with AsyncExitStack() as stack:
        fleet = [await stack.enter_async_context(scripted_worker(gate.script)) for _ in range(workers)]
        gateway = limited_gateway(*fleet, room=room, queue_seconds=queue_seconds, tenants=tenants)
        yield Crowd(await stack.enter_async_context(gateway), gate)


async def test_who_comes_when_all_is_full_waits_and_is_answered():
    """Room for one: the second goes when the first has ended, and the line is empty afterwards."""
    async with crowd() as they:
        first, second = they.ask("one"), None
        await until(lambda: len(they.gate.held) == 1)
        second = they.ask("two")
        await they.line_of(1)
        assert they.running.count("queued_requests", model="m") == 1
        they.gate.release()
        await until(lambda: len(they.gate.held) == 1)
        they.gate.release()
        assert [(await each).status for each in (first, second)] == [200, 200]
        assert they.running.count("queued_requests", model="m") == they.waiting == 0
        assert they.running.count("queue_seconds_count", model="m") == 1
        assert they.running.count("queue_seconds_sum", model="m") > 0
        await until(they.running.settled)


async def test_one_of_b_goes_before_the_many_of_a():
    """F-18: whoever filled the line first."""
    async with crowd(room=2) as they:
        for number in range(2):
            they.ask(f"a{number}")
        await until(lambda: len(they.gate.held) == 2)
        for number in range(2, 5):
            they.ask(f"a{number}")
            await they.line_of(number - 1)
        they.ask("b", key="b-key")
        await they.line_of(4)
        await they.finish()
        assert they.gate.seen.index("b") <= 3
        assert {(await task).status for task in they.tasks} == {200}


async def test_late_comers_do_not_overtake_who_waits():
    """Room that came for somebody in the line is his."""
    async with crowd() as they:
        they.ask("first")
        await until(lambda: len(they.gate.held) == 1)
        they.ask("second")
        await they.line_of(1)
        they.gate.release()
        they.ask("third")
        await they.finish()
        assert they.gate.seen == ["first", "second", "third"]


async def test_a_line_that_is_too_long_sends_away_who_has_most_in_it():
    """Twice what there is room for; the newest of A, with 429 as it has more than its share, and not B."""
    async with crowd(room=1) as they:
        they.ask("a0")
        await until(lambda: len(they.gate.held) == 1)
        waiting = [they.ask("a1"), they.ask("a2")]
        await they.line_of(2)
        b = they.ask("b", key="b-key")
        await until(lambda: any(task.done() for task in waiting))
        refused = next(task for task in waiting if task.done()).result()
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert refused.fields["retry-after"] == "1"
        assert they.running.count("limit_rejections_total", tenant="a", limit="share", enforced="true") == 1
        await they.finish()
        assert (await b).status == 200


async def test_alone_in_a_line_that_is_too_long_it_is_the_fleet_that_is_full():
    """503: nobody has more than a share; the newest goes."""
    async with crowd(room=1) as they:
        they.ask("a0")
        await until(lambda: len(they.gate.held) == 1)
        they.ask("a1")
        they.ask("a2")
        await they.line_of(2)
        refused = await they.ask("a3")
        assert (refused.status, refused.error["code"], refused.fields["retry-after"]) == (503, "no_backend", "1")
        await they.finish()


async def test_nothing_expired_goes_upstream():
    """After the deadline a 503, in time, and the worker never sees the request."""
    async with crowd(queue_seconds=0.3) as they:
        they.ask("first")
        await until(lambda: len(they.gate.held) == 1)
        began = time.monotonic()
        late = await they.ask("late")
        assert (late.status, late.error["code"]) == (503, "no_backend")
        assert 0.25 < time.monotonic() - began < 3
        assert they.running.count("limit_rejections_total", tenant="a", limit="queue", enforced="true") == 1
        await they.finish()
        assert they.gate.seen == ["first"]


async def test_nobody_waits_where_nobody_may():
    """`queue_seconds: 0` refuses at once."""
    async with crowd(queue_seconds=0) as they:
        they.ask("first")
        await until(lambda: len(they.gate.held) == 1)
        assert (await they.ask("second")).status == 503
        await they.finish()


async def test_who_leaves_the_line_leaves_no_trace():
    """Its turn is another's, and the worker never sees it."""
    async with crowd() as they:
        they.ask("first")
        await until(lambda: len(they.gate.held) == 1)
        client = await they.running.connect()
        text = [{"role": "user", "content": "gone away"}]
        await client.send(build_request(key="a-key", messages=text))
        await they.line_of(1)
        they.ask("third")
        await they.line_of(2)
        client.abort()
        await they.line_of(1)
        await they.finish()
        assert they.gate.seen == ["first", "third"]
        await until(they.running.settled)


@pytest.mark.parametrize(
    ("a", "b"), [({}, {"weight": 4.0}), ({}, {"priority": "high"}), ({"priority": "low"}, {}), ({"weight": 0.25}, {})]
)
async def test_weight_and_priority_say_whose_turn_comes_how_often(a, b):
    """Four times the weight: three prompts of B take less of its share than one of A."""
    settings = {
        name: TenantSettings(keys=[key_line(f"{name}-key")], isolation="shared", **more)
        for name, more in (("a", a), ("b", b))
    }
    async with crowd(room=3, **settings) as they:
        for number in range(3):
            they.ask(f"first{number}")
        await until(lambda: len(they.gate.held) == 3)
        names = [f"{tenant}{number}" for tenant in "ab" for number in range(3)]
        for place, name in enumerate(names, 1):
            they.ask(name, key=f"{name[0]}-key")
            await they.line_of(place)
        for place in range(6):
            they.gate.release()
            await until(lambda place=place: len(they.gate.seen) == 4 + place)
        assert they.gate.seen[3:] == ["a0", "b0", "b1", "b2", "a1", "a2"]
        await they.finish()


async def test_a_spent_budget_puts_its_tenant_behind_everybody():
    """`deprioritise`: behind the others, and served all the same."""
    from gateway.limit_settings import TenantBudget

    spent = TenantSettings(
        keys=[key_line("a-key")], isolation="shared", budget=TenantBudget(tokens=1, when_spent="deprioritise")
    )
    async with crowd(room=3, a=spent) as they:
        for number in range(3):
            they.ask(f"a{number}")
        await until(lambda: len(they.gate.held) == 3)
        they.ask("a3")
        await they.line_of(1)
        they.ask("a4")
        await they.line_of(2)
        for number in range(3):
            they.ask(f"b{number}", key="b-key")
            await they.line_of(3 + number)
        await they.finish()
        assert they.gate.seen.index("b2") < they.gate.seen.index("a4")
        assert {(await task).status for task in they.tasks} == {200}


async def test_two_hundred_streams_of_one_tenant_leave_another_in_peace():
    """F-18: A asks for 200 at once with a limit of 20; 180 are told when to come again; B is answered as if alone."""
    limited = TenantSettings(keys=[key_line("a-key")], isolation="shared", limits=TenantLimits(concurrency=20))
    async with crowd(room=64, a=limited) as they:
        alone = they.ask("b", key="b-key", stream=True)
        await they.finish()
        assert (await alone).status == 200
        many = [they.ask(f"a{number}", stream=True) for number in range(200)]
        await until(lambda: len(they.gate.held) == 20 and sum(task.done() for task in many) == 180, seconds=20)
        refused = [task.result() for task in many if task.done()]
        assert {each.status for each in refused} == {429}
        assert all(float(each.fields["retry-after"]) >= 1 for each in refused)
        assert they.waiting == 0
        b = they.ask("b", key="b-key", stream=True)
        await until(lambda: "b" in they.gate.seen[1:])
        await they.finish()
        assert (await b).status == 200
        assert [(await task).status for task in many].count(200) == 20


async def test_a_worker_that_comes_back_is_found_by_who_waits():
    """Nobody tells the line of it: it looks."""
    async with crowd(room=1, workers=2) as they:
        they.running.gateway.fleet.drain("w2")
        they.ask("first")
        await until(lambda: len(they.gate.held) == 1)
        they.ask("second")
        await they.line_of(1)
        they.running.gateway.fleet.resume("w2")
        await until(lambda: len(they.gate.held) == 2)
        await they.finish()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_heartbeat_may_come_while_one_waits(stream):
    """The line says nothing by itself: an error after a wait is an ordinary answer."""
    async with crowd(queue_seconds=0.2) as they:
        they.ask("first")
        await until(lambda: len(they.gate.held) == 1)
        late = await they.ask("late", stream=stream)
        assert late.status == 503
        assert json.loads(late.body)["error"]["type"] == "server_error"
        await they.finish()
