"""Bounds under requests that would slip past them: by another spelling, by another field, in shadow mode."""

from __future__ import annotations

import json

import pytest

from gateway.body_fields import DECIDED
from gateway.limit_settings import TenantBudget, TenantLimits
from gateway.tenant_settings import TenantSettings
from tests.gateway.builders import key_line
from tests.gateway.limits.builders import build_tenant, rejections
from tests.gateway.limits.gateways import limited_gateway
from tests.gateway.limits.test_admission import Desk
from tests.gateway.scripted_worker import scripted_worker


def bounded(**more) -> TenantSettings:
    return TenantSettings(
        keys=[key_line("a-key")], isolation="shared", limits=TenantLimits(max_output_tokens=50, **more)
    )


@pytest.mark.parametrize("asked", [51, -1, "9999", 1e9, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
async def test_no_engines_own_word_for_the_bound_opens_it(path, asked):
    """llama.cpp's `n_predict` goes before `max_tokens`, and -1 is without end there."""
    texts = {"/v1/completions": {"prompt": "a"}, "/v1/responses": {"input": "a"}}
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]} if path not in texts else {"model": "m"}
    body |= texts.get(path, {}) | {"n_predict": asked}
    async with scripted_worker() as worker, limited_gateway(worker, tenants={"a": bounded()}) as running:
        answer = await running.ask(key="a-key", path=path, body=json.dumps(body).encode())
        assert (answer.status, answer.error["param"], worker.exchanges) == (400, "n_predict", [])


async def test_a_small_one_passes_and_bounds_nothing_elsewhere():
    """vLLM does not know it: there the bound has to stand in `max_tokens` all the same."""
    async with scripted_worker() as worker, limited_gateway(worker, tenants={"a": bounded()}) as running:
        for given in (10, None):
            assert (await running.ask(key="a-key", n_predict=given)).status == 200
            assert worker.exchanges[-1].asked["max_tokens"] == 50


async def test_a_shadow_refuses_no_other_word_either():
    """It counts it."""
    tenants = {"a": bounded(enforce=False)}
    async with scripted_worker() as worker, limited_gateway(worker, tenants=tenants) as running:
        assert (await running.ask(key="a-key", n_predict=-1)).status == 200
        assert rejections(running.gateway.metrics, "output", tenant="a", enforced=False) == 1


@pytest.mark.parametrize(
    ("path", "field", "more"),
    [
        ("/v1/responses", "max_output_tokens", {"input": "a"}),
        ("/v1/messages", "max_tokens", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/chat/completions", "max_completion_tokens", {"messages": [{"role": "user", "content": "a"}]}),
    ],
)
async def test_the_refusal_names_the_field_that_was_written(path, field, more):
    """Each API has its own."""
    async with scripted_worker() as worker, limited_gateway(worker, tenants={"a": bounded()}) as running:
        body = json.dumps({"model": "m", field: 51, **more}).encode()
        answer = await running.ask(key="a-key", path=path, body=body)
        assert answer.status == 400
        assert answer.error.get("param", field) == field


async def test_a_spent_budget_in_shadow_leaves_the_place_in_the_line():
    """`enforce: false` changes nothing, `deprioritise` included."""
    desk = Desk()
    budget = TenantBudget(tokens=100, when_spent="deprioritise")
    tenant = build_tenant(budget=budget, requests_per_minute=1000, enforce=False)
    assert await desk.passed(tenant, 2, prompt_tokens=60) == 2
    assert not desk.limits.last_in_line(tenant)


def test_numbers_that_limits_go_by_stand_once():
    """Readers do not agree on which of two counts."""
    assert {"n", "best_of", "n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens"} <= DECIDED
