"""What the proxy asks of limits: admission before a prompt is read, a reservation after, a settlement at the end."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, Protocol

from gateway.accounting import Bill
from gateway.tenants import Tenant
from gateway.wire import Call


class Grant(Protocol):
    """Leave to ask, held from admission until the bill's figures are in."""

    @property
    def fields(self) -> bytes:
        """Header lines for the answer, whatever it is."""
        ...

    async def reserve(self, prompt_tokens: int, most_output_tokens: int | None) -> None:
        """Take a slot and set tokens aside; raises a `GatewayError` (429 with its `retry-after`) when the tenant may
        not have them now."""
        ...


class Admission(Protocol):
    """Lets requests in, or says why not."""

    def admit(self, tenant: Tenant, call: Call, bill: Bill) -> AbstractAsyncContextManager[Grant]:
        """A grant for one request; raises a `GatewayError` on entry. On exit what was reserved is settled by
        `bill.usage`."""
        ...


class NoLimits:
    """The grant of everybody without limits."""

    fields = b""

    async def __aenter__(self) -> Grant:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to settle."""

    async def reserve(self, prompt_tokens: int, most_output_tokens: int | None) -> None:
        """Nothing to set aside."""


NO_LIMITS: Final = NoLimits()


class Unlimited:
    """Where nobody has limits."""

    def admit(self, tenant: Tenant, call: Call, bill: Bill) -> AbstractAsyncContextManager[Grant]:
        """Everybody may."""
        del tenant, call, bill
        return NO_LIMITS
