"""What the proxy asks of limits: admission before a prompt is read, a reservation after, a settlement at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from gateway.accounting import Bill
from gateway.tenants import Tenant
from gateway.wire import Call


class Grant(Protocol):
    """Leave to ask, held from admission until the bill's figures are in. `fields` are header lines for the answer."""

    fields: bytes

    async def reserve(self, prompt_tokens: int, most_output_tokens: int | None) -> None:
        """Set tokens aside; raises a `GatewayError` (429 with its `retry-after`) when the tenant has too few left."""
        ...


class Admission(Protocol):
    """Lets requests in, or says why not."""

    def admit(self, tenant: Tenant, call: Call, bill: Bill) -> AbstractAsyncContextManager[Grant]:
        """A grant for one request; raises a `GatewayError` on entry. On exit what was reserved is settled by
        `bill.usage`."""
        ...


class Unlimited:
    """Where nobody has limits."""

    fields = b""

    async def reserve(self, prompt_tokens: int, most_output_tokens: int | None) -> None:
        """Nothing to set aside."""

    @asynccontextmanager
    async def admit(self, tenant: Tenant, call: Call, bill: Bill) -> AsyncIterator[Grant]:
        """Everybody may."""
        del tenant, call, bill
        yield self
