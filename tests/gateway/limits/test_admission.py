"""One request of a limited tenant from admission to settlement, without Redis and while it is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.errors import GatewayError, InvalidRequest, LimitsUnavailable, QuotaSpent, RateLimited
from gateway.limit_settings import TenantBudget
from gateway.limits.account import FIRST_OUTPUT_TOKENS
from gateway.limits.admission import Limits
from gateway.limits.core import NO_LIMITS, Unlimited
from gateway.limits.link import LinkError
from gateway.limits.shared import SharedCounts
from gateway.tenants import Tenant
from gateway.wire import Endpoint, parse_call
from tests.end_to_end.redis_server import redis_server
from tests.gateway.limits.builders import (
    Clock,
    answered,
    build_bill,
    build_call,
    build_metrics,
    build_tenant,
    rejections,
)
from tests.gateway.limits.redis_counts import counting
from tests.timing import best_seconds


class Desk:
    """Limits with a clock of the test's, and requests that go through them."""

    def __init__(self, shared: SharedCounts | None = None) -> None:
        self.clock = Clock()
        self.metrics = build_metrics("acme", "other")
        self.limits = Limits(self.metrics, self.clock, shared)

    @asynccontextmanager
    async def request(
        self, tenant: Tenant, prompt_tokens: int = 10, max_tokens: int | None = 0, endpoint=Endpoint.CHAT
    ):
        bill = build_bill(self.metrics, self.clock)
        async with self.limits.admit(tenant, build_call(endpoint, max_tokens), bill) as grant:
            await grant.reserve(prompt_tokens, max_tokens)
            yield grant, bill

    async def ask(self, tenant: Tenant, prompt_tokens: int = 10, output_tokens: int = 0, **more) -> None:
        """A request that is answered at once."""
        async with self.request(tenant, prompt_tokens, **more) as (_, bill):
            answered(bill, prompt_tokens, output_tokens)

    async def passed(self, tenant: Tenant, count: int, **more) -> int:
        passed = 0
        for _ in range(count):
            with contextlib.suppress(GatewayError):
                await self.ask(tenant, **more)
                passed += 1
        return passed


async def test_who_has_no_limits_costs_nothing():
    """Not even an account; `Unlimited` knows nobody else."""
    desk = Desk()
    assert desk.limits.admit(build_tenant(), build_call(), build_bill(desk.metrics, desk.clock)) is NO_LIMITS
    async with Unlimited().admit(build_tenant(), build_call(), build_bill(desk.metrics, desk.clock)) as grant:
        await grant.reserve(1, 1)
        assert grant.fields == b""
    assert desk.limits.held("acme") == 0


async def test_requests_a_minute():
    """The eleventh is told when to come again, in both spellings, and is counted."""
    desk, tenant = Desk(), build_tenant(requests_per_minute=10)
    assert await desk.passed(tenant, 12) == 10
    with pytest.raises(RateLimited, match=r"10 requests a minute; try again in 6\.0 s") as caught:
        await desk.ask(tenant)
    assert dict(caught.value.headers) == {
        "retry-after": "6",
        "retry-after-ms": "6000",
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "1m0s",
    }
    assert rejections(desk.metrics, "requests") == 3
    desk.clock.now += 6.0
    assert await desk.passed(tenant, 2) == 1


async def test_concurrency_is_held_until_the_end():
    """However a request ends, its slot comes back."""
    desk, tenant = Desk(), build_tenant(concurrency=1)
    async with desk.request(tenant):
        with pytest.raises(RateLimited, match="1 requests at a time"):
            await desk.ask(tenant)
    for error in (ValueError, asyncio.CancelledError):
        with contextlib.suppress(error):
            async with desk.request(tenant):
                assert desk.limits.held("acme") == 1
                raise error
        assert desk.limits.held("acme") == 0
    desk.limits.check_integrity()


async def test_a_refused_request_holds_nothing():
    """Nor does one that fails between admission and reservation."""
    desk, tenant = Desk(), build_tenant(tokens_per_minute=100)
    await desk.ask(tenant, 100)
    with pytest.raises(RateLimited, match="tokens a minute"):
        await desk.ask(tenant, 50)
    with pytest.raises(ValueError, match="no such template"):
        async with desk.limits.admit(tenant, build_call(), build_bill(desk.metrics, desk.clock)):
            raise ValueError("no such template")
    desk.limits.check_integrity()
    assert desk.limits.held("acme") == 0


async def test_tokens_are_reserved_then_settled():
    """Prompt and bound are set aside; what the worker reports is what is paid."""
    desk, tenant = Desk(), build_tenant(tokens_per_minute=1000)
    async with desk.request(tenant, 100, max_tokens=200) as (grant, bill):
        assert b"x-ratelimit-remaining-tokens: 700" in grant.fields
        answered(bill, 100, 20)
    assert b"x-ratelimit-remaining-tokens: 880" in grant.fields


async def test_an_answer_of_unsaid_length_is_taken_for_what_the_tenants_answers_have():
    """Learned from what was reported; a larger bound reserves no more than that."""
    desk, tenant = Desk(), build_tenant(tokens_per_minute=10**6)
    account = desk.limits.account(tenant)
    assert account.cost(100, None) == 100 + FIRST_OUTPUT_TOKENS
    for _ in range(60):
        await desk.ask(tenant, 10, 40, max_tokens=None)
    assert account.cost(100, None) == pytest.approx(140, abs=2)
    assert account.cost(100, 32_000) == account.cost(100, None)
    assert account.cost(100, 7) == 107


@pytest.mark.parametrize(
    ("happens", "charged"),
    [
        ("left before it was placed", 0),
        ("left before the first token", 100),
        ("left after the first token", 130),
        ("failed at the worker", 0),
        ("broke after the first token", 130),
        ("answered without usage", 130),
    ],
)
async def test_what_is_charged_where_nobody_reports(happens, charged):
    """Leaving early is not free; what the worker failed to do is."""
    desk, tenant = Desk(), build_tenant(tokens_per_minute=1000)
    with contextlib.suppress(asyncio.CancelledError, ValueError):
        async with desk.request(tenant, 100, max_tokens=30) as (grant, bill):
            bill.tries = 0 if "placed" in happens else 1
            if "after" in happens:
                bill.ttft_seconds = 0.1
            if "answered" in happens:
                bill.answered(200, None)
            if "left" in happens:
                raise asyncio.CancelledError
            if "failed" in happens:
                raise ValueError
    assert b"remaining-tokens: %d\r" % (1000 - charged) in grant.fields


async def test_who_takes_nearly_all_of_a_long_answer_and_leaves_pays_for_it():
    """What has come is counted by its events where nobody reports."""
    desk, tenant = Desk(), build_tenant(tokens_per_minute=10_000)
    with contextlib.suppress(asyncio.CancelledError):
        async with desk.request(tenant, 100, max_tokens=None) as (grant, bill):
            bill.tries, bill.ttft_seconds, bill.output_events = 1, 0.1, 5000
            raise asyncio.CancelledError
    assert b"remaining-tokens: 4900\r" in grant.fields


async def test_every_answer_and_every_prompt_of_a_request_is_reserved():
    """`n` answers to each prompt of a batch; what is learned is the length of one answer."""
    desk, tenant = Desk(), build_tenant(tokens_per_minute=100_000)
    body = json.dumps({"model": "m", "prompt": ["a", "b" * 4000, "c" * 4000], "n": 8, "max_tokens": 50})
    call = parse_call(Endpoint.COMPLETIONS, body.encode())
    bill = build_bill(desk.metrics, desk.clock)
    async with desk.limits.admit(tenant, call, bill) as grant:
        await grant.reserve(1, 50)
        left = int(grant.fields.split(b"remaining-tokens: ")[1].split(b"\r")[0])
        assert 100_000 - left == pytest.approx(2001 + 24 * 50, rel=0.1)
        answered(bill, 2001, 24 * 50)
    assert desk.limits.account(tenant).output_tokens == pytest.approx(0.9 * FIRST_OUTPUT_TOKENS + 0.1 * 50)


async def test_who_is_given_a_larger_budget_may_go_on():
    """What is spent stays as many tokens: it does not grow with the budget."""
    desk = Desk()
    await desk.ask(build_tenant(budget=TenantBudget(tokens=100)), 100)
    with pytest.raises(QuotaSpent):
        await desk.ask(build_tenant(budget=TenantBudget(tokens=100)), 1)
    await desk.ask(build_tenant(budget=TenantBudget(tokens=150)), 50)
    with pytest.raises(QuotaSpent):
        await desk.ask(build_tenant(budget=TenantBudget(tokens=150)), 1)


async def test_counting_tokens_costs_no_tokens_and_embeddings_no_answer():
    """Each is a request all the same."""
    desk, tenant = Desk(), build_tenant(tokens_per_minute=1000, requests_per_minute=5)
    await desk.ask(tenant, 400, endpoint=Endpoint.EMBEDDINGS, max_tokens=None)
    async with desk.request(tenant, 400, None, Endpoint.COUNT_TOKENS) as (grant, _):
        assert b"anthropic-ratelimit-tokens-remaining: 600" in grant.fields
        assert b"anthropic-ratelimit-requests-remaining: 3" in grant.fields
    assert desk.limits.account(tenant).output_tokens == FIRST_OUTPUT_TOKENS


async def test_a_longer_answer_than_allowed_is_refused_with_both_numbers():
    """A mistake of the request, not a matter of time."""
    desk, tenant = Desk(), build_tenant(max_output_tokens=50)
    with pytest.raises(InvalidRequest, match=r"may have 50 tokens .* asks for 51") as caught:
        await desk.ask(tenant, max_tokens=51)
    assert caught.value.param == "max_tokens"
    await desk.ask(tenant, max_tokens=50)
    assert rejections(desk.metrics, "output") == 1


async def test_a_shadow_counts_and_never_refuses():
    """`enforce: false`: the counter says what enforcement would refuse, and no more."""
    desk = Desk()
    tenant = build_tenant(requests_per_minute=3, concurrency=1, max_output_tokens=5, enforce=False)
    assert await desk.passed(tenant, 8) == 8
    async with desk.request(tenant), desk.request(tenant, max_tokens=9):
        pass
    assert (
        rejections(desk.metrics, "requests", enforced=False) + rejections(desk.metrics, "concurrency", enforced=False)
        == 7
    )
    assert rejections(desk.metrics, "output", enforced=False) == 1
    assert rejections(desk.metrics, "requests") == 0
    assert tenant.most_output_tokens is None
    desk.limits.check_integrity()


async def test_a_spent_budget_is_not_to_be_tried_again():
    """429 insufficient_quota with `x-should-retry: false`, and the ratio on /metrics."""
    desk, tenant = Desk(), build_tenant(budget=TenantBudget(tokens=100, every="1h"))
    await desk.ask(tenant, 120)
    with pytest.raises(QuotaSpent, match="budget of 100 tokens is spent") as caught:
        await desk.ask(tenant)
    assert ("x-should-retry", "false") in caught.value.headers
    assert (caught.value.status, caught.value.type, caught.value.code) == (429, *["insufficient_quota"] * 2)
    desk.metrics.refresh()
    assert desk.metrics.registry.get_sample_value("homing_tenant_budget_used_ratio", {"tenant": "acme"}) == 1.2
    desk.clock.now += 3600
    await desk.ask(tenant)
    assert rejections(desk.metrics, "budget") == 1


async def test_a_spent_budget_may_only_warn(caplog):
    """Once in each period."""
    desk, tenant = Desk(), build_tenant(budget=TenantBudget(tokens=100, every="1h", when_spent="warn"))
    assert await desk.passed(tenant, 5, prompt_tokens=60) == 5
    assert caplog.text.count("a budget is spent") == 1
    desk.clock.now += 3600
    await desk.passed(tenant, 5, prompt_tokens=60)
    assert caplog.text.count("a budget is spent") == 2


async def test_a_spent_budget_may_put_its_tenant_last():
    """`deprioritise`: felt only where there is a line."""
    desk, tenant = Desk(), build_tenant(budget=TenantBudget(tokens=100, when_spent="deprioritise"))
    assert not desk.limits.last_in_line(tenant)
    assert await desk.passed(tenant, 2, prompt_tokens=60) == 2
    assert desk.limits.last_in_line(tenant)
    assert not desk.limits.last_in_line(build_tenant("other"))


async def test_changed_settings_hold_for_the_next_request():
    """A reload brings another tenant of the same name; what is under way stays counted."""
    desk = Desk()
    async with desk.request(build_tenant(concurrency=1)):
        with pytest.raises(RateLimited):
            await desk.ask(build_tenant(concurrency=1))
        await desk.ask(build_tenant(concurrency=2))
    desk.limits.check_integrity()


# While Redis is away


@asynccontextmanager
async def away(replicas: int = 3) -> AsyncIterator[Desk]:
    """A gateway whose Redis refuses connections, one of several as it last heard."""
    async with counting("redis://127.0.0.1:1/0", seconds=0.05, others=replicas - 1) as (gateway,):
        desk = Desk(gateway.shared)
        await desk.ask(build_tenant("other", requests_per_minute=10**6))
        assert not gateway.shared.up
        yield desk


def modes(desk: Desk) -> dict[str, float]:
    desk.metrics.refresh()
    value = desk.metrics.registry.get_sample_value
    found = {mode: value("homing_limited_tenants", {"mode": mode}) for mode in ("redis", "local", "open", "closed")}
    return {mode: count for mode, count in found.items() if count}


async def test_local_allows_each_gateway_its_share(caplog):
    """C8: three gateways together at most 1.2 times the limit; one line in the log each minute."""
    async with away() as desk:
        passed = await desk.passed(build_tenant(requests_per_minute=60), 100)
        assert 3 * passed <= 1.2 * 60
        assert passed == 20
        assert modes(desk) == {"local": 2}
        assert caplog.text.count("limits go without Redis") == 1
        desk.clock.now += 60
        async with desk.request(build_tenant(requests_per_minute=60)) as (grant, _):
            assert b"limit-requests: 60\r\nx-ratelimit-remaining-requests: 57" in grant.fields
        assert caplog.text.count("limits go without Redis") == 2


async def test_local_shares_tokens():
    """Which only the size of a prompt tells; of 600 over three gateways 200 each."""
    async with away() as desk:
        assert await desk.passed(build_tenant(tokens_per_minute=600), 10, prompt_tokens=100) == 2


async def test_local_shares_slots():
    """A limit of 20 over three gateways: six each."""
    async with away() as desk, contextlib.AsyncExitStack() as stack:
        tenant = build_tenant(concurrency=20)
        for _ in range(6):
            await stack.enter_async_context(desk.request(tenant))
        with pytest.raises(RateLimited):
            await desk.ask(tenant)


async def test_open_lets_everybody_pass_and_counts_them():
    """C8: nobody is refused."""
    async with away() as desk:
        tenant = build_tenant(requests_per_minute=5, when_redis_is_away="open")
        assert await desk.passed(tenant, 50) == 50
        assert modes(desk) == {"open": 1, "local": 1}
        assert desk.limits.held("acme") == 0


async def test_closed_lets_nobody_pass():
    """C8: 503, for it is not the tenant that takes too much."""
    async with away() as desk:
        tenant = build_tenant(requests_per_minute=5, when_redis_is_away="closed")
        for _ in range(7):
            with pytest.raises(LimitsUnavailable):
                await desk.ask(tenant)
        assert rejections(desk.metrics, "closed") == 7
        assert modes(desk) == {"closed": 1, "local": 1}
        assert (
            await desk.passed(build_tenant(requests_per_minute=5, when_redis_is_away="closed", enforce=False), 3) == 3
        )


async def test_a_slot_that_was_taken_without_redis_is_said_to_it(tmp_path, monkeypatch):
    """One call that fails: its request is let in by ourselves, and the other gateways know of it a moment later."""
    tenant = build_tenant(concurrency=1)
    with redis_server(tmp_path) as server:
        async with counting(server.url, 2) as (one, other):
            with monkeypatch.context() as patched:
                patched.setattr(one.shared, "_call", refuse)
                request = Desk(one.shared).request(tenant)
                await request.__aenter__()
            theirs = other.account(tenant)
            async with asyncio.timeout(10):
                while await other.ask(theirs) is None:
                    other.end(theirs)
            await request.__aexit__(None, None, None)
            async with asyncio.timeout(10):
                while await other.ask(theirs) is not None:
                    pass


async def refuse(batch: object) -> None:
    """A call that Redis does not answer."""
    raise LinkError(f"no answer to {batch}")


async def test_what_is_spent_while_redis_is_away_is_owed_to_it():
    """The budget of a period does not forget."""
    async with away() as desk:
        tenant = build_tenant(budget=TenantBudget(tokens=900))
        await desk.ask(tenant, 40, 2)
        assert desk.limits.account(tenant).owed_budget == 42


def test_a_limited_request_costs_microseconds():
    """Everything counted here, headers included: CPU time of a request in the gateway's own count."""
    desk, tenant = Desk(), build_tenant(requests_per_minute=10**9, tokens_per_minute=10**9, concurrency=100)
    call, bill = build_call(max_tokens=100), build_bill(desk.metrics, desk.clock)
    answered(bill, 10, 5)

    async def many() -> None:
        for _ in range(500):
            async with desk.limits.admit(tenant, call, bill) as grant:
                await grant.reserve(10, 100)
                grant.fields  # noqa: B018

    def drive() -> None:
        with pytest.raises(StopIteration):
            many().send(None)  # nothing in it waits, so no loop is needed

    seconds = best_seconds(drive) / 500
    print(f"{seconds * 1e6:.2f} µs")
    assert seconds < 40e-6
