"""Routes ask for a key, inside names mean nothing from outside, and strangers' words make no series and no lines."""

from __future__ import annotations

import io
import json
import random
import string

import pytest

from gateway.logs import Lines, RequestLog
from gateway.settings import Log
from gateway.wire import Endpoint
from tests.gateway.reloading import build_data, gateway_from, replace_data
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import scripted_worker

ROUTES = [*(("POST", each.value) for each in Endpoint), ("GET", "/v1/models"), ("GET", "/v1/models/m")]

INTERNAL = (
    "x-tenant", "x-tenant-id", "x-homing-tenant", "x-homing-backend", "x-homing-session", "x-homing-priority",
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-prefix", "forwarded",
    "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip", "x-original-url",
    "x-rewrite-url", "x-original-host", "x-worker", "x-worker-id", "x-worker-url", "x-data-parallel-rank",
    "x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset", "x-smg-target-worker",
    "x-smg-routing-key", "x-smg-tenant-id", "x-user-id", "x-api-version", "x-envoy-original-path",
    "x-envoy-upstream-rq-timeout-ms", "x-envoy-retry-on", "x-internal", "x-admin", "x-http-method-override",
    "baggage", "cookie", "proxy-authorization",
)  # fmt: skip
ALLOWED_UPSTREAM = {
    "host", "accept", "accept-encoding", "content-type", "content-length", "x-request-id", "traceparent", "tracestate",
}  # fmt: skip


def sent_names(head: bytes) -> set[str]:
    """The header names that a worker got."""
    return {line.partition(b":")[0].decode().lower() for line in head.split(b"\r\n")[1:] if line}


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.row("G2", smoke=True)
async def test_every_route_asks_for_a_key_before_it_reads_anything(method, path):
    """G2: none, an unknown one, one of a tenant without the model; the body is not even looked at."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        body = b"not even JSON" if method == "POST" else b""
        for key in (None, "", "unknown", "acme-keyx"):
            answer = await running.ask(method=method, path=path, key=key, body=body)
            assert answer.status == 401, (key, answer.status)
        assert worker.exchanges == []


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/workers", "/explain", "/config", "/health", "/"])
@pytest.mark.row("G3", smoke=True)
async def test_nothing_of_the_admin_port_is_on_the_data_port(path):
    """G3: with a tenant's key or without."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        for method in ("GET", "POST", "DELETE"):
            assert (await running.ask(method=method, path=path, body=b"{}")).status == 404


@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title])
@pytest.mark.row("F4", smoke=True)
async def test_a_name_that_means_something_inside_means_nothing_from_outside(spelling):
    """F4: tenant, worker and salt are the same with them, doubled, and named in Connection; none goes upstream."""
    async with scripted_worker() as one, scripted_worker() as other:
        async with running_gateway(one, other) as running:
            await running.ask(key="curious-key")
            plain = (one.exchanges + other.exchanges)[0]
            home = one if one.exchanges else other
            headers = [(spelling(name), value) for name in INTERNAL for value in ("globex", "10.0.0.1")]
            for part in (headers[:60], headers[60:], [("Connection", ", ".join(INTERNAL[:40]))]):
                answer = await running.ask(key="curious-key", headers=part)
                assert answer.status == 200, answer.body
            exchanges = home.exchanges
            assert len(exchanges) == 4
            assert all(exchange.asked == plain.asked for exchange in exchanges)
            assert all(sent_names(exchange.head) <= ALLOWED_UPSTREAM for exchange in exchanges)
            assert running.count("requests_total", tenant="curious", model="m", code="200") == 4


async def test_strangers_words_make_no_series():
    """G11, E-07: a thousand models, users, paths and keys nobody knows; the number of series stays what it was."""
    draw = random.Random(5)

    def word() -> str:
        return "".join(draw.choices(string.ascii_letters, k=12))

    def series(running) -> int:
        running.gateway.metrics.refresh()
        return sum(len(family.samples) for family in running.gateway.metrics.registry.collect())

    async with scripted_worker() as worker, running_gateway(worker) as running:

        async def strange() -> None:
            await running.ask(model=word())
            await running.ask(key=word())
            await running.ask(path=f"/v1/{word()}")
            await running.ask(
                user=word(), session_id=word(), headers=[("user-agent", word()), ("x-session-id", word())]
            )

        await strange()
        before = series(running)
        for _ in range(60):
            await strange()
        assert series(running) == before


@pytest.mark.row("G12", smoke=True)
async def test_what_a_caller_writes_cannot_begin_a_new_line_of_the_log(tmp_path, caplog):
    """G12: a request is one line of JSON whatever it says; no line ends, escapes and marks of direction are in it."""
    hostile, lines, path = 'm\r\n{"level":"error"}\x1b[31m\u202e', io.StringIO(), tmp_path / "homing.yaml"
    caplog.set_level("DEBUG")
    async with scripted_worker() as worker:
        replace_data(path, build_data(worker.port))
        async with gateway_from(path, RequestLog(Log(format="json"), lines)) as running:
            await running.ask(model=hostile)
            await running.ask(path="/v1/responses", input=hostile, user=hostile, prompt_cache_key=hostile)
            await running.ask(session_id=hostile, headers=[("x-session-id", "a\x1b[31m")])
            await running.ask(headers=[("x-request-id", "a b\x1b[31m")])
            await running.ask(headers=[("user-agent", "\u202e".encode().decode("latin-1"))])
    told = lines.getvalue().removesuffix("\n").split("\n")
    assert [json.loads(line)["event"] for line in told] == ["request"] * 3, "two heads are no heads"
    told += [Lines(as_json=True).format(record) for record in caplog.records]
    assert len(told) > 3, "the gateway itself told nothing"
    for text in told:
        assert not {"\n", "\r", "\x1b", "\u202e"} & set(text)
        json.loads(text)
