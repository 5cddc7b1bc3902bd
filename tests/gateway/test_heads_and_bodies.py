"""Heads that two readers could take for two things are refused; bodies are let come only as far as they may."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.gateway.running_gateway import MESSAGES, Client, Running, build_request
from tests.gateway.scripted_worker import until
from tests.gateway.test_proxy import one_worker

BODY = json.dumps({"model": "m", "messages": MESSAGES}).encode()
LIMIT = 4 * 2**20
SLACK = 64 * 1024


def with_lines(*lines: str, body: bytes = BODY, version: str = "1.1") -> bytes:
    """A good request with these lines more."""
    head, _, _ = build_request(body=body, version=version).partition(b"\r\n\r\n")
    return b"\r\n".join((head, *[line.encode("latin-1") for line in lines])) + b"\r\n\r\n" + body


async def test_a_name_with_an_underscore_is_refused() -> None:
    """Row F4: whoever makes variables of fields takes it for `-`."""
    async with one_worker() as (running, worker):
        for name in ("x_tenant", "X_Tenant_Id", "_", "content_length", "transfer_encoding", "Host_"):
            answer = await running.send(with_lines(f"{name}: 1"))
            assert (answer.status, worker.exchanges) == (400, []), name
            assert "`_`" in answer.error["message"]


SAID_TWICE = (
    "Host: other",
    "host: gateway",
    "authorization: Bearer shared-key",
    "Authorization: Bearer acme-key",
    "content-type: a\r\ncontent-type: b",
    "content-encoding: identity\r\nContent-Encoding: gzip",
    "expect: 100-continue\r\nexpect: 100-continue",
    "x-session-id: a\r\nX-SESSION-ID: b",
    "x-request-id: a\r\nx-request-id: a",
    "x-api-key: a\r\nx-api-key: b",
    "transfer-encoding: chunked",
    "transfer-encoding: identity",
    "content-length: 5",
    f"content-length: {len(BODY)}",
    "traceparent: a\r\ntraceparent: b",
)


async def test_what_may_be_said_once_is_refused_twice() -> None:
    """Row F1 and case F-12: also where both say the same."""
    async with one_worker() as (running, worker):
        for line in SAID_TWICE:
            answer = await running.send(with_lines(line))
            assert (answer.status, worker.exchanges) == (400, []), line


async def test_other_fields_may_come_twice() -> None:
    """Proxies add their own line to one that is there."""
    async with one_worker() as (running, _):
        wire = with_lines("x-forwarded-for: 1.2.3.4", "x-forwarded-for: 5.6.7.8", "via: a", "via: b")
        assert (await running.send(wire)).status == 200


CODINGS = (
    ("1.1", "chunked", 200),
    ("1.1", "Chunked", 200),
    ("1.0", "chunked", 400),
    ("1.1", "gzip, chunked", 400),
    ("1.1", "identity", 400),
    ("1.1", "chunked, chunked", 400),
    ("1.1", "xchunked", 400),
    ("1.1", "chunked;q=1", 400),
    ("1.1", '"chunked"', 400),
)


async def test_chunked_is_the_only_coding_and_of_http_1_1() -> None:
    """Row F1: anything else is framed in one way here and in another there."""
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    async with one_worker() as (running, worker):
        for version, coding, status in CODINGS:
            worker.exchanges.clear()
            wire = build_request(body=chunked, headers={"transfer-encoding": coding}, version=version)
            assert (await running.send(wire)).status == status, coding
            assert len(worker.exchanges) == (status == 200)


async def test_another_protocol_is_not_spoken_and_nothing_behind_it_read() -> None:
    """The request itself is answered (Java's client asks every server for h2c); what follows might be no HTTP/1.1."""
    async with one_worker() as (running, worker):
        for upgrade in ("websocket", "h2c", "TLS/1.0"):
            worker.exchanges.clear()
            wire = with_lines(f"upgrade: {upgrade}", "connection: upgrade, HTTP2-Settings", "http2-settings: AAMAAABk")
            client = await running.connect()
            await client.send(wire + build_request())
            answer = await client.answer()
            assert (answer.status, answer.fields["connection"]) == (200, "close")
            assert await client.closed()
            assert len(worker.exchanges) == 1


@pytest.mark.parametrize("target", ["gateway:80", "/v1/chat/completions"])
async def test_connect_is_refused_and_nothing_behind_it_read(target: str) -> None:
    """A tunnel's bytes are nobody's requests."""
    async with one_worker() as (running, worker):
        client = await running.connect()
        await client.send(b"CONNECT %b HTTP/1.1\r\nhost: gateway\r\n\r\n" % target.encode() + build_request())
        answer = await client.answer()
        assert answer.status in (400, 404, 405)
        assert await client.closed()
        assert worker.exchanges == []


async def ask_first(running: Running, **request: object) -> tuple[Client, bytes]:
    """A client that waits for a go-ahead; the body that it has still to send."""
    headers = {"expect": "100-continue", **request.pop("headers", {})}  # type: ignore[dict-item]
    head, _, body = build_request(headers=headers, **request).partition(b"\r\n\r\n")  # type: ignore[arg-type]
    client = await running.connect()
    await client.send(head + b"\r\n\r\n")
    return client, body


async def test_no_go_ahead_for_a_body_that_may_not_come() -> None:
    """Case C-24: 413 from the declared length, 415 from the encoding, before a byte of it is sent."""
    async with one_worker(body_bytes=1000) as (running, worker):
        for headers, status in (({"content-length": "1001"}, 413), ({"content-encoding": "br"}, 415)):
            client, _ = await ask_first(running, headers=headers)
            answer = await asyncio.wait_for(client.answer(), 2)
            assert (answer.status, answer.fields["connection"]) == (status, "close")
            client.close()
        assert worker.exchanges == []


async def test_no_go_ahead_for_a_path_or_a_method_that_there_is_not() -> None:
    """Nothing of the body would be read."""
    async with one_worker() as (running, _):
        for request in ({"path": "/v1/nothing"}, {"method": "PUT", "headers": {"content-length": "5"}}):
            client, _ = await ask_first(running, **request)
            assert (await asyncio.wait_for(client.answer(), 2)).status in (404, 405)
            client.close()


async def test_an_http_1_0_client_gets_no_go_ahead() -> None:
    """It would not know what that is."""
    async with one_worker() as (running, _):
        client, body = await ask_first(running, version="1.0")
        await client.send(body)
        assert (await client.answer()).status == 200
        client.close()


async def test_a_go_ahead_in_a_pipeline_comes_behind_the_answer_before_it() -> None:
    """In order, like everything on a connection."""
    async with one_worker() as (running, _):
        head, _, body = build_request(headers={"expect": "100-continue"}).partition(b"\r\n\r\n")
        client = await running.connect()
        await client.send(build_request() + head + b"\r\n\r\n")
        assert (await client.answer()).status == 200
        assert (await client.head())[0] == 100
        await client.send(body)
        assert (await client.answer()).status == 200
        client.close()


class Flood:
    """Sends a body without end and counts what the gateway took."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.read_bytes = 0

    async def __call__(self, client: Client, chunked: bool) -> None:
        piece = b"x" * 65536
        framed = b"10000\r\n" + piece + b"\r\n" if chunked else piece
        try:
            while True:
                client.writer.write(framed)
                await client.writer.drain()
                self.look()
        except (ConnectionError, asyncio.CancelledError):
            pass

    def look(self) -> None:
        for handler in self.running.gateway.server._http.connections:
            if handler._current_request is not None:
                self.read_bytes = max(self.read_bytes, handler._current_request.content.total_bytes)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.row("E7", smoke=True)
async def test_a_gigabyte_is_refused_before_it_is_read(chunked: bool) -> None:
    """Row E7 and case C-21: at most the limit and 64 KiB are read, and the client sees the answer."""
    framing = {"transfer-encoding": "chunked"} if chunked else {"content-length": str(2**30)}
    async with one_worker(body_bytes=LIMIT) as (running, worker):
        client = await running.connect()
        await client.send(build_request(body=b"", headers=framing))
        await until(lambda: running.gateway.server.open_requests == 1 or not chunked)
        flood = Flood(running)
        sending = asyncio.create_task(flood(client, chunked))
        answer = await asyncio.wait_for(client.answer(), 20)
        flood.look()
        assert (answer.status, answer.fields["connection"]) == (413, "close")
        assert str(LIMIT) in answer.error["message"]
        await until(lambda: running.gateway.server.connections.open == 0)
        flood.look()
        sending.cancel()
        print(f"read {flood.read_bytes - LIMIT} bytes over the limit")
        assert flood.read_bytes <= LIMIT + SLACK
        assert worker.exchanges == []
        client.abort()


async def test_a_chunked_body_of_just_the_limit_passes() -> None:
    """Small steps near the limit change nothing but the steps, and the connection is read as before afterwards."""
    body = json.dumps({"model": "m", "prompt": "x" * (LIMIT - 28)}).encode()
    assert len(body) == LIMIT
    pieces = [body[start : start + 100_000] for start in range(0, len(body), 100_000)]
    wire = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    async with one_worker(body_bytes=LIMIT) as (running, worker):
        client = await running.connect()
        for _ in range(2):
            await client.send(
                build_request("/v1/completions", body=wire, headers={"transfer-encoding": "chunked"}, key="shared-key")
            )
            assert (await client.answer()).status == 200
        assert [exchange.body for exchange in worker.exchanges] == [body, body]
        client.close()


async def test_a_body_after_a_refusal_is_not_taken_for_a_request() -> None:
    """Case F-12: what follows a 401 is the body that was announced, whatever it looks like."""
    async with one_worker() as (running, worker):
        client = await running.connect()
        await client.send(build_request(key="wrong", body=b"", headers={"content-length": "100000"}))
        answer = await client.answer()
        assert (answer.status, answer.fields["connection"]) == (401, "close")
        client.writer.write(build_request())
        assert await client.closed()
        assert worker.exchanges == []


async def test_a_client_that_sends_on_after_a_refusal_is_left_a_moment_only() -> None:
    """A second, and then the connection is closed, however much is still to come."""
    async with one_worker() as (running, _):
        client = await running.connect()
        await client.send(build_request(key="wrong", body=b"", headers={"content-length": "100000"}))
        started = time.monotonic()
        assert (await client.answer()).status == 401
        assert await client.closed()
        assert time.monotonic() - started < 4.0
