"""Row C7: a Redis that answers every command with an error, and one whose replica takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.faults.client import Answer, Client, failed, load_while, quantile
from tests.faults.proxy import FaultProxy
from tests.faults.stage import GatewayProcess, Stage, until
from tests.faults.test_redis_faults import ADDED_MS, paced, state_of, two_gateways_behind_a_proxy

TROUBLES = {
    "READONLY": b"-READONLY You can't write against a read only replica.\r\n",
    "LOADING": b"-LOADING Redis is loading the dataset in memory\r\n",
    "MOVED": b"-MOVED 3999 127.0.0.1:6381\r\n",
    "OOM": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "WRONGTYPE": b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
}
SLICE_SECONDS = 2.0


def all_say(gateways: list[GatewayProcess], degraded: list[str]) -> Callable[[], Awaitable[bool]]:
    """Whether each of them says that just this is missing."""

    async def say() -> bool:
        return all([await state_of(gateway) == degraded for gateway in gateways])

    return say


@pytest.mark.row("C7", seconds=240)
async def test_a_redis_that_fails_over_costs_no_answer_and_no_time(stage: Stage) -> None:
    """Five errors in turn as the answer to everything, then a replica that refuses writes until it is promoted."""
    async with two_gateways_behind_a_proxy(stage) as (_, proxy, gateways):
        clients = [stage.client(gateway) for gateway in gateways]
        calm, hit, joining = [], [], []
        await until(all_say(gateways, []), seconds=15)
        for said in TROUBLES.values():
            calm += await paced(clients, SLICE_SECONDS)
            proxy.says = said
            hit += await paced(clients, SLICE_SECONDS)
            await until(all_say(gateways, ["redis"]), seconds=15)
            proxy.says = None
            joining.append(await until(all_say(gateways, []), seconds=15))
        async with under_load(clients) as beside:
            joining.append(await fail_over(stage, proxy, gateways))
    wrong = len(failed([*calm, *hit, *beside]))
    added = 1000 * (quantile([a.ttft for a in hit], 0.99) - quantile([a.ttft for a in calm], 0.99))
    stage.row.holds(
        f"{wrong} errors of {len(calm) + len(hit) + len(beside)}, p99 {added:+.1f} ms while all is answered with "
        f"{', '.join(TROUBLES)}; joined {max(joining[:-1]):.1f} s after, {joining[-1]:.1f} s after a promotion",
        not wrong and added <= ADDED_MS and max(joining) <= 2.5,
    )


@asynccontextmanager
async def under_load(clients: list[Client]) -> AsyncIterator[list[Answer]]:
    """Requests for as long as the block runs; their answers once it is over."""
    running, answers = True, list[Answer]()
    loads = [asyncio.create_task(load_while(client, lambda: running, at_once=3)) for client in clients]
    try:
        yield answers
    finally:
        running = False
        for found in await asyncio.gather(*loads):
            answers += found


async def fail_over(stage: Stage, proxy: FaultProxy, gateways: list[GatewayProcess]) -> float:
    """The first Redis is gone, and its address leads to a replica, which is promoted two seconds later; the seconds
    from then until all have joined."""
    with stage.redis() as replica:
        replica.start()
        replica.command("REPLICAOF", "127.0.0.1", str(proxy.target[1]))
        proxy.target = ("127.0.0.1", replica.port)
        proxy.reset_all()
        await asyncio.sleep(2.0)
        assert replica.command("SET", "a", "b").startswith(b"-READONLY")
        replica.command("REPLICAOF", "NO", "ONE")
        return await until(all_say(gateways, []), seconds=15)
