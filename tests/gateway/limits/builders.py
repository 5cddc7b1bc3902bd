"""Tenants with limits, calls and bills for the tests of limits, and a clock that goes when told."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry

from gateway.accounting import Accounts, Bill
from gateway.limit_settings import TenantBudget, TenantLimits
from gateway.metrics import Metrics
from gateway.tenants import Tenant
from gateway.wire import Call, Endpoint, Usage
from router.core import PromptSource


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def build_metrics(*tenants: str) -> Metrics:
    metrics = Metrics(CollectorRegistry())
    metrics.know(tenants=tenants or ("acme",))
    return metrics


def build_tenant(name: str = "acme", *, budget: TenantBudget | None = None, **limits: Any) -> Tenant:
    """A tenant; without any word on limits it has none."""
    return Tenant(name, limits=TenantLimits(**limits) if limits else None, budget=budget)


def build_call(endpoint: Endpoint = Endpoint.CHAT, max_tokens: int | None = None) -> Call:
    return Call(
        endpoint=endpoint,
        model="m",
        source=PromptSource(prompt="hello"),
        stream=False,
        include_usage=False,
        body=b"{}",
        max_tokens=max_tokens,
    )


def build_bill(metrics: Metrics, clock: Clock) -> Bill:
    return Accounts(metrics, clock).open("r1")


def answered(bill: Bill, prompt_tokens: int, output_tokens: int) -> None:
    """The worker's answer passed, with its usage."""
    bill.answered(200, Usage(prompt_tokens, output_tokens, None))


def rejections(metrics: Metrics, limit: str, *, tenant: str = "acme", enforced: bool = True) -> float:
    labels = {"tenant": tenant, "limit": limit, "enforced": "true" if enforced else "false"}
    return metrics.registry.get_sample_value("homing_limit_rejections_total", labels) or 0.0
