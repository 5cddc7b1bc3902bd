"""The data port as any client on the network meets it."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import os
import time
import zlib
from contextlib import suppress

import pytest
from aiohttp.http import HttpRequestParser
from aiohttp.http_parser import HttpRequestParserPy

from gateway.bodies import zstd
from tests.gateway.running_gateway import MESSAGES, Client, build_request, running_gateway
from tests.gateway.scripted_worker import (
    DONE,
    Exchange,
    answer_json,
    event,
    scripted_worker,
    silent,
    stream_then,
    until,
)
from tests.gateway.test_proxy import one_worker

BODY = json.dumps({"model": "m", "messages": MESSAGES}).encode()


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/v1/chat/completions/",
        "//v1/chat/completions",
        "/v1/./chat/completions",
        "/v1/x/../chat/completions",
        "/v1/chat%2fcompletions",
        "/v1/chat/completions;a=b",
        "/V1/chat/completions",
        "http://evil/v1/chat/completions",
        "/metrics",
        "/livez",
        "/v1/load_lora_adapter",
        "/reset_prefix_cache",
        "/sleep",
        "/kv_event_sources",
        "/server_info",
        "/v1/cache/map",
        "/v1/cache/pull",
        "/v1/cache/blocks",
        "/workers",
        "*",
        "/v1/chat/completions#x",
    ],
)
async def test_nothing_beside_the_table_exists(target: str) -> None:
    """Row F6: exactly these paths, by the raw target."""
    async with one_worker() as (running, worker):
        answer = await running.ask(path=target)
        assert (answer.status, worker.exchanges) in ((404, []), (400, []))
        assert answer.error["type"] == "invalid_request_error"


async def test_a_query_does_not_make_another_path() -> None:
    """Some clients add one; it goes no further."""
    async with one_worker() as (running, worker):
        assert (await running.ask(path="/v1/chat/completions?api-version=1")).status == 200
        assert worker.exchanges[0].head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/chat/completions", "POST"), ("DELETE", "/v1/completions", "POST"), ("POST", "/v1/models", "GET")],
)
async def test_a_wrong_method_is_told_the_right_one(method: str, path: str, allowed: str) -> None:
    """405 in the OpenAI shape."""
    async with one_worker() as (running, _):
        answer = await running.ask(method=method, path=path)
        assert (answer.status, answer.fields["allow"]) == (405, allowed)
        assert answer.error["type"] == "invalid_request_error"


async def test_models_lists_what_the_key_may_use() -> None:
    """Case D-07's plain half; no key, no list."""
    async with scripted_worker(models=("m", "unconfigured")) as worker, running_gateway(worker) as running:
        answer = await running.ask(method="GET", path="/v1/models")
        assert (answer.status, [card["id"] for card in answer.json["data"]]) == (200, ["m"])
        assert answer.json["data"][0]["max_model_len"] == 4096
        assert (await running.ask(method="GET", path="/v1/models", key="foreign-key")).json["data"] == []
        assert (await running.ask(method="GET", path="/v1/models", key=None)).status == 401


async def test_a_connection_serves_one_request_after_another() -> None:
    """Keep-alive, over plain answers, streams and errors."""
    async with one_worker() as (running, _):
        client = await running.connect()
        for _ in range(3):
            await client.send(build_request())
            assert (await client.answer()).body == answer_json()
            await client.send(build_request(stream=True))
            assert (await client.answer()).body.endswith(DONE)
            await client.send(build_request(model=""))
            assert (await client.answer()).status == 400
        client.close()


async def test_pipelined_requests_are_answered_in_order() -> None:
    """Row E6."""

    async def echo(exchange: Exchange) -> None:
        await asyncio.sleep(0.02 if exchange.asked["n"] == 0 else 0)
        await exchange.send_json(b'{"n":%d}' % exchange.asked["n"])

    async with one_worker(echo) as (running, _):
        client = await running.connect()
        await client.send(b"".join(build_request(n=number) for number in range(5)))
        assert [(await client.answer()).json["n"] for _ in range(5)] == list(range(5))
        client.close()


async def test_an_http_1_0_client_is_answered_as_it_expects() -> None:
    """No chunks; a stream ends by the close (case C-29), a plain answer by its length."""
    async with one_worker() as (running, _):
        client = await running.connect()
        await client.send(build_request(version="1.0"))
        answer = await client.answer()
        assert (answer.body, answer.fields["connection"]) == (answer_json(), "close")
        assert await client.closed()
        client = await running.connect()
        await client.send(build_request(version="1.0", stream=True))
        answer = await client.answer()
        assert "transfer-encoding" not in answer.fields
        assert answer.body == event("one") + event("two") + event("three") + DONE
        kept = await running.connect()
        for _ in range(2):
            await kept.send(build_request(version="1.0", headers={"connection": "keep-alive"}))
            assert (await kept.answer()).fields["connection"] == "keep-alive"
        kept.close()


async def test_a_client_that_says_close_is_obeyed() -> None:
    """And told so."""
    async with one_worker() as (running, _):
        client = await running.connect()
        await client.send(build_request(headers={"connection": "close"}))
        assert (await client.answer()).fields["connection"] == "close"
        assert await client.closed()


@pytest.mark.parametrize(("version", "status"), [("2.0", 505), ("0.9", 505)])
async def test_other_versions_are_refused(version: str, status: int) -> None:
    """505 for what parses, 400 for what does not."""
    async with one_worker() as (running, worker):
        answer = await running.ask(version=version)
        assert answer.status == status
        assert worker.exchanges == []


async def test_a_client_that_waits_for_a_go_ahead_gets_it_when_its_key_is_good() -> None:
    """Case C-24: 100 within 50 ms, then the answer; the header is not sent on."""
    big = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 3_000_000}]}).encode()
    async with one_worker() as (running, worker):
        request = build_request(body=big, headers={"expect": "100-continue"})
        head, _, body = request.partition(b"\r\n\r\n")
        client = await running.connect()
        started = time.monotonic()
        await client.send(head + b"\r\n\r\n")
        assert await client.head() == (100, {})
        assert time.monotonic() - started < 0.5
        await client.send(body)
        assert (await client.answer()).status == 200
        assert worker.exchanges[0].field("expect") is None
        client.close()


async def test_a_client_that_waits_with_a_bad_key_is_refused_without_sending() -> None:
    """Case C-24: 401 at once, no 100."""
    async with one_worker() as (running, _):
        request = build_request(key="wrong", body=b"x" * 1000, headers={"expect": "100-continue"})
        client = await running.connect()
        await client.send(request.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
        answer = await asyncio.wait_for(client.answer(), 1)
        assert (answer.status, answer.fields["connection"]) == (401, "close")
        client.close()


MALFORMED = [
    b"GARBAGE\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\nhello",
    b"POST /v1/chat/completions HTTP/1.1\nhost: a\n\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-CANARY\x00\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nAuthorization: Bearer " + b"CANARY" * 2000 + b"\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx: a\r\n folded CANARY\r\n\r\n",
    b"POST /CANARY" + b"x" * 9000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
]


async def test_a_malformed_request_is_refused_closed_and_quoted_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """Rows F1, G6, cases F-09 and F-12."""
    caplog.set_level(logging.DEBUG)
    async with one_worker() as (running, worker):
        for wire in MALFORMED:
            client = await running.connect()
            await client.send(wire)
            answer = await client.answer()
            assert answer.status == (431 if len(wire) > 8190 else 400), wire[:200]
            assert answer.error["type"] == "invalid_request_error"
            assert await client.closed()
            assert worker.exchanges == []
            assert "CANARY" not in caplog.text + answer.body.decode() + str(answer.fields)


def test_requests_are_parsed_by_the_strict_parser() -> None:
    """The rows above hold for aiohttp's C parser; its Python one has had more holes."""
    assert HttpRequestParser is not HttpRequestParserPy


async def test_a_smuggled_second_request_is_a_second_request_or_none() -> None:
    """Case F-12: as many requests at the worker as at the gateway."""
    inner = build_request(n=2)
    async with one_worker() as (running, worker):
        client = await running.connect()
        await client.send(build_request(n=1) + inner)
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]
        assert [exchange.asked["n"] for exchange in worker.exchanges] == [1, 2]
        client.close()


def compressed(encoding: str, body: bytes) -> bytes:
    bare = zlib.compressobj(wbits=-15)
    ways = {
        "gzip": gzip.compress,
        "x-gzip": gzip.compress,
        "deflate": zlib.compress,
        "bare deflate": lambda data: bare.compress(data) + bare.flush(),
        "zstd": zstd.compress,
        "identity": bytes,
    }
    return ways[encoding](body)


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "bare deflate", "zstd", "identity"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_compressed_request_reaches_the_worker_plain(encoding: str, chunked: bool) -> None:
    """Case C-23: the body matches its headers; a chunked one is as good."""
    plain = json.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * 20_000}]}).encode()
    wire = compressed(encoding, plain)
    headers = {"content-encoding": encoding.removeprefix("bare ")}
    if chunked:
        headers["transfer-encoding"] = "chunked"
        pieces = [wire[i : i + 1000] for i in range(0, len(wire), 1000)]
        wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    async with one_worker() as (running, worker):
        answer = await running.ask(body=wire, headers=headers, key="shared-key")
        assert answer.status == 200
        assert worker.exchanges[0].body == plain
        assert worker.exchanges[0].field("content-encoding") is None
        assert worker.exchanges[0].field("content-length") == str(len(plain))


async def test_an_encoding_not_spoken_is_a_415() -> None:
    """Case C-23: never guessed, never passed on."""
    async with one_worker() as (running, worker):
        for encoding in ("foo", "br", "gzip, gzip", "gzip, identity"):
            answer = await running.ask(headers={"content-encoding": encoding})
            assert (answer.status, worker.exchanges) == (415, [])
            assert "gzip" in answer.error["message"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_a_damaged_stream_is_a_400(encoding: str) -> None:
    """Cut short, with something behind it, or none at all."""
    wire = compressed(encoding, BODY * 50)
    async with one_worker() as (running, worker):
        for damaged in (wire[:-5], wire + b"more", bytes(20)):
            answer = await running.ask(body=damaged, headers={"content-encoding": encoding})
            assert (answer.status, worker.exchanges) == (400, [])


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_a_413_that_names_it(encoding: str, chunked: bool) -> None:
    """Case C-21: by its declared length, by its chunks, and decoded (case F-14)."""
    wire = compressed(encoding, b"x" * 200_000)
    headers = {"content-encoding": encoding}
    if chunked:
        headers["transfer-encoding"] = "chunked"
        wire = b"%x\r\n%b\r\n0\r\n\r\n" % (len(wire), wire)
    async with one_worker(body_bytes=100_000) as (running, worker):
        answer = await running.ask(body=wire, headers=headers)
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert "100000" in answer.error["message"]
        assert worker.exchanges == []


async def test_a_bomb_is_refused_without_stalling_others() -> None:
    """Row E7: 64 KB that would be 64 MB, twice what may be; `make hostile` holds the bar of 20 ms."""
    squeeze = zlib.compressobj(level=1, wbits=31)
    bomb = b"".join([squeeze.compress(bytes(2**20)) for _ in range(64)]) + squeeze.flush()
    async with one_worker() as (running, _):
        task = asyncio.create_task(running.ask(body=bomb, headers={"content-encoding": "gzip"}))
        longest, before = 0.0, time.process_time()
        while not task.done():
            await asyncio.sleep(0.001)
            now = time.process_time()
            longest, before = max(longest, now - before), now
        assert (await task).status == 413
        assert longest < (0.02 if os.environ.get("HOSTILE_STRICT") else 0.1)


async def test_a_body_that_stops_coming_is_a_408() -> None:
    """Row E5, with the deadline scaled down."""
    async with one_worker() as (running, worker):
        running.gateway.server._proxy._body_seconds = 0.1
        client = await running.connect()
        await client.send(build_request(body=BODY, headers={"content-length": str(len(BODY) + 10)}))
        answer = await client.answer()
        assert (answer.status, answer.fields["connection"]) == (408, "close")
        assert worker.exchanges == []
        client.close()


async def test_broken_chunks_of_a_request_are_a_400() -> None:
    """Whatever was read of it goes nowhere."""
    async with one_worker() as (running, worker):
        client = await running.connect()
        await client.send(build_request(body=b'5\r\n{"mod\r\n', headers={"transfer-encoding": "chunked"}))
        await until(lambda: running.gateway.server.open_requests == 1)
        await client.send(b"zz\r\nnonsense\r\n")
        answer = await client.answer()
        assert (answer.status, worker.exchanges) == (400, [])
        client.close()


async def test_a_client_that_leaves_while_sending_costs_nothing() -> None:
    """Row E1, the first phase."""
    async with one_worker() as (running, worker):
        client = await running.connect()
        await client.send(build_request(body=BODY, headers={"content-length": str(len(BODY) + 10)}))
        await until(lambda: running.gateway.server.open_requests == 1)
        client.close()
        await until(running.settled)
        assert worker.exchanges == []


async def test_a_fault_of_our_own_is_a_500_and_says_nothing() -> None:
    """Row D6: the process lives, and neither the answer nor the log quotes the prompt."""
    async with one_worker() as (running, _):

        def fail(model: str) -> None:
            raise RuntimeError(f"CANARY {model}")

        running.gateway.server._proxy._routers = fail  # type: ignore[assignment]
        answer = await running.ask()
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert b"CANARY" not in answer.body
        assert running.count("requests_total", tenant="acme", model="m", code="500") == 1


async def open_stream(running: object) -> Client:
    client: Client = await running.connect()  # type: ignore[attr-defined]
    await client.send(build_request(stream=True))
    await client.head()
    await client.chunk()
    return client


async def test_open_streams_finish_when_the_gateway_drains() -> None:
    """Row D1: every one, whole; new connections are not taken."""
    release = asyncio.Event()

    async def on_release(exchange: Exchange) -> None:
        await release.wait()
        await exchange.chunk(event("last") + DONE)
        await exchange.end_stream()

    async with scripted_worker(stream_then(1, on_release)) as worker, running_gateway(worker) as running:
        clients = [await open_stream(running) for _ in range(30)]
        draining = asyncio.create_task(running.gateway.drain())
        await asyncio.sleep(0.05)
        with pytest.raises(ConnectionRefusedError):
            await running.connect()
        assert not draining.done()
        release.set()
        for client in clients:
            assert await client.chunk() == event("last") + DONE
            assert await client.chunk() == b""
            client.close()
        await asyncio.wait_for(draining, 2)


async def test_a_grace_too_short_ends_streams_with_an_error_event() -> None:
    """Row D2: `gateway_shutdown`, no `[DONE]`, in time."""
    async with scripted_worker(stream_then(1, silent)) as worker, running_gateway(worker, drain=0.2) as running:
        clients = [await open_stream(running) for _ in range(10)]
        started = time.monotonic()
        await running.gateway.drain()
        assert time.monotonic() - started < 2.2
        for client in clients:
            error = json.loads((await client.chunk()).removeprefix(b"data: "))["error"]
            assert (error["type"], error["code"]) == ("server_error", "gateway_shutdown")
            assert await client.chunk() == b""
            assert await client.closed()
        await until(lambda: all(exchange.client_gone_at is not None for exchange in worker.exchanges))


async def test_answers_given_while_draining_send_their_clients_away() -> None:
    """Row D1: `Connection: close`."""
    async with one_worker() as (running, _):
        client = await running.connect()
        await client.send(build_request())
        assert "connection" not in (await client.answer()).fields
        running.gateway.server.drain()
        await client.send(build_request())
        assert (await client.answer()).fields["connection"] == "close"
        with suppress(ConnectionError):
            assert await client.closed()


async def test_a_kept_connection_holds_up_no_exit() -> None:
    """Row D1: with nothing to answer it is closed at once, not when a time is up."""
    async with one_worker() as (running, _):
        client = await running.connect()
        await client.send(build_request())
        await client.answer()
        started = time.monotonic()
        await running.gateway.drain()
        assert time.monotonic() - started < 1.5
        with suppress(ConnectionError):
            assert await client.closed()
