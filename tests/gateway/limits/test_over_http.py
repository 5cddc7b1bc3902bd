"""Limits as a client sees them: statuses, headers, the forwarded body, and several gateways on one real Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from gateway.limit_settings import TenantBudget, TenantLimits
from gateway.tenant_settings import TenantSettings
from tests.end_to_end.redis_server import RedisServer, redis_server
from tests.gateway.builders import key_line
from tests.gateway.limits.gateways import limited_gateway
from tests.gateway.running_gateway import Running, build_request
from tests.gateway.scripted_worker import Exchange, ScriptedWorker, ordinary, scripted_worker, until


def limited(*, budget: TenantBudget | None = None, **limits) -> TenantSettings:
    return TenantSettings(
        keys=[key_line("a-key")], isolation="shared", limits=TenantLimits(**limits) if limits else None, budget=budget
    )


@asynccontextmanager
async def one(tenant: TenantSettings, script=ordinary) -> AsyncIterator[tuple[Running, ScriptedWorker]]:
    async with scripted_worker(script) as worker, limited_gateway(worker, tenants={"a": tenant}) as running:
        yield running, worker


async def test_every_answer_of_a_limited_tenant_tells_its_limits():
    """A good one, a refused one, and one that fails before anything is reserved; nobody else's does."""
    async with one(limited(requests_per_minute=2, tokens_per_minute=10_000)) as (running, _):
        good = await running.ask(key="a-key", max_tokens=50)
        assert good.fields["x-ratelimit-limit-requests"] == "2"
        assert good.fields["x-ratelimit-remaining-requests"] == "1"
        assert good.fields["x-ratelimit-reset-requests"].endswith("s")
        assert 9_000 < int(good.fields["x-ratelimit-remaining-tokens"]) < 10_000
        bad = await running.ask(key="a-key", messages=[{"role": "user", "content": "x" * 9000}], session_id="\n")
        assert bad.status == 400
        await running.ask(key="a-key", stream=True)
        refused = await running.ask(key="a-key")
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert (refused.error["type"], refused.fields["x-ratelimit-remaining-requests"]) == ("rate_limit_error", "0")
        assert 1 <= int(refused.fields["retry-after"]) <= 30
        assert int(refused.fields["retry-after-ms"]) <= 30_000
        assert "x-ratelimit-limit-requests" not in (await running.ask(key="b-key")).fields


async def test_anthropics_clients_are_told_in_their_own_words():
    """`anthropic-ratelimit-*`, and an error of their shape."""
    async with one(limited(requests_per_minute=1)) as (running, _):
        body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
        asked = {"path": "/v1/messages", "key": "a-key", "body": json.dumps(body).encode()}
        await running.ask(**asked)
        refused = await running.ask(**asked)
        assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")
        assert refused.fields["anthropic-ratelimit-requests-remaining"] == "0"
        assert refused.fields["anthropic-ratelimit-requests-reset"].endswith("Z")
        assert "x-ratelimit-limit-requests" not in refused.fields


async def test_a_spent_budget_is_not_tried_again():
    """The official clients obey `x-should-retry`."""
    async with one(limited(budget=TenantBudget(tokens=50, every="1h"))) as (running, _):
        assert (await running.ask(key="a-key")).status == 200  # the worker reports 103 tokens
        refused = await running.ask(key="a-key")
        assert (refused.status, refused.error["type"], refused.error["code"]) == (429, *["insufficient_quota"] * 2)
        assert refused.fields["x-should-retry"] == "false"
        running.gateway.metrics.refresh()
        assert running.count("tenant_budget_used_ratio", tenant="a") == pytest.approx(103 / 50)


async def test_usage_settles_what_was_reserved():
    """The worker's 103 tokens are what is gone, streamed or not, asked for or not."""
    async with one(limited(tokens_per_minute=600_000)) as (running, _):
        account = running.gateway.limits.account(running.gateway.tenants.named("a"))
        for stream in (False, True):
            before = account.allowance.tokens.level
            await running.ask(key="a-key", stream=stream, max_tokens=4000)
            await until(lambda: account.allowance.held == 0)
            assert before - account.allowance.tokens.level <= 103
        await until(running.settled)


async def test_an_answer_of_unsaid_length_gets_the_bound_and_nothing_else_changes():
    """Every other byte of the body is the caller's."""
    body = b'{ "model": "m", "temperature":0.70,\n "messages" : [{"role":"user","content":"\\u00e9 hi"}], "x": 1e2 }'
    async with one(limited(max_output_tokens=77)) as (running, worker):
        await running.ask(key="a-key", body=body)
        sent = worker.exchanges[-1].body
        assert json.loads(sent) == {**json.loads(body), "max_tokens": 77}
        for piece in (b"0.70", b'[{"role":"user","content":"\\u00e9 hi"}]', b"1e2"):
            assert piece in sent
        said = body.replace(b'"x": 1e2', b'"max_tokens": 70')
        await running.ask(key="a-key", body=said)
        assert worker.exchanges[-1].body == said
        refused = await running.ask(key="a-key", max_completion_tokens=78)
        assert (refused.status, refused.error["param"]) == (400, "max_completion_tokens")
        assert "77" in refused.error["message"]
        assert "78" in refused.error["message"]
        await running.ask(key="a-key", path="/v1/completions", body=b'{"model":"m","prompt":"hi"}')
        assert worker.exchanges[-1].asked["max_tokens"] == 16
        await running.ask(key="b-key", body=body)
        assert worker.exchanges[-1].body == body


@pytest.mark.parametrize(
    ("path", "fields", "forwarded"),
    [
        ("/v1/chat/completions", {"max_completion_tokens": 5, "max_tokens": 78}, None),
        ("/v1/chat/completions", {"max_completion_tokens": 0}, 77),
        ("/v1/chat/completions", {"max_tokens": 0}, 77),
        ("/v1/completions", {"max_completion_tokens": 5, "max_tokens": 78}, None),
        ("/v1/completions", {"max_completion_tokens": 78}, None),
        ("/v1/completions", {"max_completion_tokens": 5, "max_tokens": None}, 16),
        ("/v1/completions", {"max_completion_tokens": 5}, 16),
        ("/v1/completions", {"max_completion_tokens": 5, "max_tokens": 9}, 9),
    ],
)
async def test_no_engine_reads_a_longer_answer_than_allowed_out_of_two_bounds(path, fields, forwarded):
    """Whichever of the two it goes by, and whatever 0 and null mean to it."""
    text = {"prompt": "hi"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "hi"}]}
    async with one(limited(max_output_tokens=77)) as (running, worker):
        answer = await running.ask(key="a-key", path=path, body=json.dumps({"model": "m", **text, **fields}).encode())
        assert answer.status == (400 if forwarded is None else 200)
        assert [each.asked["max_tokens"] for each in worker.exchanges] == [forwarded] * (forwarded is not None)


async def test_a_shadow_changes_no_body():
    """`enforce: false`: not even the bound is written."""
    async with one(limited(max_output_tokens=5, requests_per_minute=1, enforce=False)) as (running, worker):
        statuses = {(await running.ask(key="a-key", max_tokens=9)).status for _ in range(3)}
        assert statuses == {200}
        assert worker.exchanges[-1].asked["max_tokens"] == 9
        assert running.count("limit_rejections_total", tenant="a", limit="requests", enforced="false") == 2


async def test_a_slot_is_free_when_the_client_is_gone():
    """Whatever phase the request was in."""

    async def hold(exchange: Exchange) -> None:
        await exchange.begin_stream()
        with suppress(ConnectionError):
            await exchange.client_gone()

    async with one(limited(concurrency=1), hold) as (running, _):
        for stream in (False, True):
            client = await running.connect()
            await client.send(build_request(key="a-key", stream=stream))
            await until(lambda: running.gateway.limits.held("a") == 1)
            assert (await running.ask(key="a-key")).status == 429
            client.abort()
            await until(lambda: running.gateway.limits.held("a") == 0)
        running.gateway.limits.check_integrity()


# Several gateways on one Redis


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(server: RedisServer) -> RedisServer:
    server.command("FLUSHALL")
    return server


@asynccontextmanager
async def three(redis: RedisServer, tenant: TenantSettings, script=ordinary) -> AsyncIterator[list[Running]]:
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(scripted_worker(script))
        gateways = [
            await stack.enter_async_context(limited_gateway(worker, tenants={"a": tenant}, redis_url=redis.url))
            for _ in range(3)
        ]
        await until(lambda: all(each.gateway.limits.shared.replicas == 3 for each in gateways), seconds=10)
        for each in gateways:  # about what is counted, on a machine that may be busy
            each.gateway.limits.shared._link._call_seconds = 2.0
        assert all(each.gateway.limits.shared.up for each in gateways)
        yield gateways


async def statuses(gateways: list[Running], count: int, key: str = "a-key") -> list[int]:
    """What so many requests at once get, in turn at each gateway."""
    asked = (gateways[number % len(gateways)].ask(key=key) for number in range(count))
    return [answer.status for answer in await asyncio.gather(*asked)]


async def test_three_gateways_hold_one_limit(redis):
    """C9 through HTTP: 12 requests a minute in all, whichever gateway is asked."""
    async with three(redis, limited(requests_per_minute=12, concurrency=100)) as gateways:
        got = await statuses(gateways, 60)
        assert set(got) == {200, 429}
        assert 12 <= got.count(200) <= 15
        await until(lambda: sum(each.gateway.limits.held("a") for each in gateways) == 0)


async def test_redis_away_back_and_flushed_under_load_fails_nobody(redis):
    """C2, C3, C6: SIGSTOP, thaw, FLUSHALL, SCRIPT FLUSH while requests come: no answer but 200 and 429."""
    async with three(redis, limited(concurrency=30, requests_per_minute=10**6)) as gateways:
        for each in gateways:
            each.gateway.limits.shared._link._call_seconds = 0.05
        got = await statuses(gateways, 30)
        redis.freeze()
        try:
            got += await statuses(gateways, 30)
            got += await statuses(gateways, 30)
        finally:
            redis.thaw()
        redis.command("SCRIPT", "FLUSH")
        got += await statuses(gateways, 30)
        redis.command("FLUSHALL")
        got += await statuses(gateways, 30)
        assert set(got) <= {200, 429}
        assert got.count(200) > 100
        await until(lambda: all(each.gateway.limits.shared.up for each in gateways), seconds=15)


async def test_while_redis_is_away_three_gateways_allow_about_one_limit(redis):
    """C8 local: at most 1.2 times the limit over three gateways; the mode is on /metrics."""
    async with three(redis, limited(requests_per_minute=60, concurrency=60)) as gateways:
        redis.command("SHUTDOWN", "NOSAVE")
        try:
            for each in gateways:
                while each.gateway.limits.shared.up:
                    await each.ask(key="a-key")
            for each in gateways:
                each.gateway.limits.account(each.gateway.tenants.named("a")).allowance.requests.level = 20.0
            got = await statuses(gateways, 120)
            assert got.count(200) <= 1.2 * 60
            for each in gateways:
                each.gateway.metrics.refresh()
                assert each.count("limited_tenants", mode="local") == 1
        finally:
            redis.start()


async def test_who_has_no_limits_never_touches_redis(redis):
    """Not a command of the limits for such a tenant, nor does Redis' absence matter to it."""
    async with three(redis, TenantSettings(keys=[key_line("a-key")], isolation="shared")) as gateways:
        assert set(await statuses(gateways, 9)) == {200}
        assert b"limits" not in redis.command("KEYS", "*limits*")


async def test_no_name_and_no_key_is_in_redis(redis):
    """Digests only."""
    async with three(redis, limited(requests_per_minute=100, concurrency=5)) as gateways:
        await statuses(gateways, 6)
        keys = redis.command("KEYS", "*:limits:*")
        assert b"limits:{" in keys
        name = keys.split(b"\r\n")[2]
        held = redis.command("HGETALL", name)
        assert b"a-key" not in held
        assert b"\r\na\r\n" not in held
