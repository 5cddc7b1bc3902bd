"""Lets the requests of limited tenants in: by this gateway's own count, or by the one in Redis that all share."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final

from gateway.accounting import Bill
from gateway.limits.account import Account
from gateway.limits.core import NO_LIMITS, Grant
from gateway.limits.grant import LimitedGrant
from gateway.limits.link import LimitsLink
from gateway.limits.shared import SharedCounts
from gateway.metrics import Metrics
from gateway.settings import Redis
from gateway.supervise import Supervisor
from gateway.tenants import Tenant
from gateway.wire import Call

LOG_EVERY_SECONDS: Final = 60.0
MODES: Final = ("redis", "local", "open", "closed")

log = logging.getLogger("homing.limits")


class Limits:
    """The admission of a gateway. `shared` is the count in Redis, None where this gateway counts by itself. `clock`
    gives monotonic seconds.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float], shared: SharedCounts | None = None) -> None:
        self.metrics = metrics
        self.clock = clock
        self.shared = shared
        self._accounts: dict[str, Account] = {}
        self._said_at: float | None = None
        metrics.before_scrape(self.refresh)

    async def __aenter__(self) -> Limits:
        if self.shared is not None:
            await self.shared.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shared is not None:
            await self.shared.__aexit__(kind, error, trace)

    def admit(self, tenant: Tenant, call: Call, bill: Bill) -> AbstractAsyncContextManager[Grant]:
        """A grant; who has neither limits nor a budget gets it for nothing."""
        if tenant.limits is None and tenant.budget is None:
            return NO_LIMITS
        return LimitedGrant(self, self.account(tenant), call, bill)

    def account(self, tenant: Tenant) -> Account:
        """The account of a tenant, by its settings of this moment."""
        account = self._accounts.get(tenant.name)
        if account is None:
            account = self._accounts[tenant.name] = Account.open(tenant, self.clock())
        elif account.limits is not tenant.limits or account.budget is not tenant.budget:
            account.adopt(tenant, self.clock())
        return account

    def last_in_line(self, tenant: Tenant) -> bool:
        """Whether the tenant has spent a budget that is to be felt only when the fleet is full."""
        budget = tenant.budget
        if budget is None or budget.when_spent != "deprioritise":
            return False
        account = self.account(tenant)
        return account.enforced and account.allowance.spent(self.clock())

    def check_integrity(self) -> None:
        """Raise AssertionError when a tenant holds less than nothing."""
        for account in self._accounts.values():
            if account.allowance.held < 0:
                raise AssertionError(f"{account.tenant} holds {account.allowance.held} slots")

    def held(self, tenant: str) -> int:
        """Requests of a tenant that are under way here."""
        account = self._accounts.get(tenant)
        return account.allowance.held if account is not None else 0

    def refresh(self) -> None:
        """Bring the gauges up to date."""
        for account in self._accounts.values():
            if account.budget is not None:
                account.allowance.spent(self.clock())
                self.metrics.tenant_budget_used_ratio.labels(account.tenant).set(account.budget_ratio)
        modes = Counter(self.mode(account) for account in self._accounts.values())
        for mode in MODES:
            self.metrics.limited_tenants.labels(mode).set(modes[mode])

    def mode(self, account: Account) -> str:
        """Where this tenant is counted now."""
        if self.shared is None:
            return "local"
        if self.shared.up:
            return "redis"
        return account.limits.when_redis_is_away if account.limits is not None else "local"

    def alone(self, account: Account, now: float) -> None:
        """Count this tenant by ourselves: all of its limits without Redis, our share of them while it is away."""
        if self.shared is None:
            return
        account.share(self.shared.replicas, now)
        if self._said_at is None or now - self._said_at >= LOG_EVERY_SECONDS:
            self._said_at = now
            modes = Counter(self.mode(each) for each in self._accounts.values())
            log.warning("limits go without Redis", extra={"fields": {"gateways": self.shared.replicas, **modes}})

    def warn_of_budget(self, account: Account, now: float) -> None:
        """Say once in each period that a budget is spent which refuses nobody."""
        ends_at = account.allowance.budget_ends_at
        if account.allowance.spent(now) and ends_at is not None and now >= account.warned_until:
            account.warned_until = ends_at
            log.warning("a budget is spent", extra={"fields": {"tenant": account.tenant}})

    def count(self, account: Account, limit: str, *, enforced: bool) -> None:
        """One more request over a limit."""
        self.metrics.limit_rejections_total.labels(account.tenant, limit, "true" if enforced else "false").inc()


def build_limits(
    settings: Redis | None,
    url: str | None,
    metrics: Metrics,
    clock: Callable[[], float],
    others: Callable[[], int | None],
    supervisor: Supervisor,
) -> Limits:
    """Limits that are counted in Redis where one is configured. `others` as for `SharedCounts`."""
    if settings is None or url is None:
        return Limits(metrics, clock)
    failed = metrics.redis_errors_total.labels().inc
    return Limits(metrics, clock, SharedCounts(LimitsLink(url), settings.name, clock, failed, others, supervisor))
