"""Counts of several gateways on one real Redis, for the tests of limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.limits.account import Account, Question
from gateway.limits.allowance import Refusal
from gateway.limits.link import LimitsLink
from gateway.limits.shared import SharedCounts
from gateway.tenants import Tenant

PATIENCE_SECONDS = 2.0
"""These tests are about what is counted: a busy machine must not look like a Redis that is away."""


def build_question(cost: float = 1.0) -> Question:
    return Question(cost, asyncio.get_running_loop().create_future())


class Counting:
    """One gateway's counts, and the failures it had."""

    def __init__(self, url: str, name: str, seconds: float, others: int | None) -> None:
        self.failures = 0
        self.shared = SharedCounts(LimitsLink(url, seconds), name, time.monotonic, self._failed, lambda: others)

    def _failed(self) -> None:
        self.failures += 1

    def account(self, tenant: Tenant) -> Account:
        return Account.open(tenant, time.monotonic())

    async def ask(self, account: Account, cost: float = 1.0) -> Refusal | None:
        return await self.shared.ask(account, build_question(cost))

    def end(self, account: Account, reserved: float = 1.0, used: float = 1.0) -> None:
        account.settle_shared(reserved, used)
        self.shared.tell(account)


@asynccontextmanager
async def counting(
    url: str, count: int = 1, *, name: str = "t", seconds: float = PATIENCE_SECONDS, others: int | None = 0
) -> AsyncIterator[list[Counting]]:
    """So many gateways that count together."""
    async with AsyncExitStack() as stack:
        gateways = [Counting(url, name, seconds, others) for _ in range(count)]
        for each in gateways:
            await stack.enter_async_context(each.shared)
        yield gateways
