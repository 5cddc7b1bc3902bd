"""Several gateways in this process on one real Redis before scripted workers, and requests through them in turn."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from router.policy import REASONS
from tests.gateway.running_gateway import Answer, Running, running_gateway
from tests.gateway.scripted_worker import ScriptedWorker, scripted_worker, until

HEAD = [{"role": "system", "content": "Keep to the rules. " * 120}]
REJOIN_SECONDS = 3.0


@dataclass
class Trio:
    """Gateways of one fleet, and what came of the requests that were sent through them in turn."""

    gateways: Sequence[Running]
    workers: Sequence[ScriptedWorker]
    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def joined(self) -> bool:
        return all(each.gateway.sharing is not None and each.gateway.sharing.joined for each in self.gateways)

    def alone(self) -> bool:
        return not any(each.gateway.sharing is not None and each.gateway.sharing.joined for each in self.gateways)

    async def traffic(self, until_seconds: float) -> None:
        """Requests one after the other through every gateway in turn."""
        end, number = time.monotonic() + until_seconds, 0
        while time.monotonic() < end:
            began = time.monotonic()
            answer = await self.gateways[number % len(self.gateways)].ask(messages=conversation(number % 7))
            self.seconds.append(time.monotonic() - began)
            self.statuses.append(answer.status)
            number += 1

    def in_flight(self) -> list[int]:
        """Requests that each gateway believes in flight, everybody's."""
        return [
            sum(router.stats().in_flight for router in each.gateway.serving.routers.values()) for each in self.gateways
        ]

    def all_well(self) -> None:
        assert set(self.statuses) == {200}
        for each in self.gateways:
            assert each.gateway.sharing is not None
            each.gateway.sharing.check_integrity()


def conversation(number: int, turns: int = 1) -> list[dict[str, str]]:
    said = [{"role": "user", "content": f"question {number} " + "and more " * 60}]
    for turn in range(1, turns):
        said += [{"role": "assistant", "content": "hi hi"}, {"role": "user", "content": f"turn {turn} " * 40}]
    return [*HEAD, *said]


@asynccontextmanager
async def trio(url: str, *, count: int = 3, script=None) -> AsyncIterator[Trio]:
    """Gateways on this Redis before two workers, all joined where Redis is there."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(scripted_worker(script) if script else scripted_worker()) for _ in range(2)
        ]
        gateways = [await stack.enter_async_context(running_gateway(*workers, redis_url=url)) for _ in range(count)]
        yield Trio(gateways, workers)


async def told_everybody(group: Trio) -> None:
    """Everything placed and ended so far was heard by all."""
    placed = sum(
        each.count("placements_total", model="m", reason=reason) for each in group.gateways for reason in REASONS
    )

    def heard() -> bool:
        counts = [each.count("news_heard_total", kind=kind) for each in group.gateways for kind in ("placed", "ended")]
        return sum(counts) == 2 * placed * (len(group.gateways) - 1)

    await until(heard)


async def backend(gateway: Running, messages: list[dict[str, str]]) -> str:
    answer: Answer = await gateway.ask(key="curious-key", messages=messages, headers={"x-homing-debug": "1"})
    assert answer.status == 200
    return answer.fields["x-homing-backend"]


async def readiness(gateway: Running) -> tuple[int, dict]:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{gateway.gateway.admin_port}/readyz") as answer:
            return answer.status, await answer.json()
