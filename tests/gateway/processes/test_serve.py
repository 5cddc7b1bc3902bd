"""What is said at the start of several processes that an operator may not know."""

from __future__ import annotations

import pytest

from gateway.limit_settings import TenantBudget, TenantLimits
from gateway.processes.serve import warn_of_limits
from gateway.settings import Config, Redis, TenantSettings

LIMITED = {
    "a": TenantSettings(limits=TenantLimits(requests_per_minute=60)),
    "b": TenantSettings(budget=TenantBudget(tokens=1000)),
    "c": TenantSettings(limits=TenantLimits(max_output_tokens=9)),
    "free": TenantSettings(),
}


def test_limits_that_each_process_counts_alone_are_told_of(caplog):
    """Who is concerned, how many times as much passes, and what to do; a bound of answers needs no count."""
    warn_of_limits(Config(models={}, tenants=LIMITED), 4)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "each process counts limits alone" in record.getMessage()
    assert record.fields == {"tenants": ["a", "b"], "up_to_times": 4, "then": "set redis, or divide the limits"}


@pytest.mark.parametrize(
    "config",
    [
        Config(models={}, tenants=LIMITED, redis=Redis(url="redis://127.0.0.1:1")),
        Config(models={}, tenants={"c": LIMITED["c"], "free": LIMITED["free"]}),
    ],
)
def test_nothing_is_said_where_they_count_together_or_need_not(config, caplog):
    """With Redis, or without limits."""
    warn_of_limits(config, 4)
    assert caplog.records == []
