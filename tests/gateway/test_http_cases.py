"""The catalogued cases of HTTP, one test each: what others reported of gateways, and what this one does."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import random
import time
import zlib
from functools import cache
from pathlib import Path

import pytest

from gateway.bodies import zstd
from tests.gateway.running_gateway import Client, build_request, running_gateway
from tests.gateway.scripted_worker import DONE, Exchange, answer_json, event, scripted_worker, silent, until
from tests.gateway.test_proxy import one_worker

MIB = 2**20


def resident_bytes() -> int:
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


async def drained(client: Client) -> tuple[int, bytes]:
    """A stream's length and its last bytes, without keeping it."""
    size, last = 0, b""
    while payload := await client.chunk():
        size, last = size + len(payload), payload
    return size, last


async def test_c_16_a_stream_that_moves_is_never_cut() -> None:
    """C-16: no total time, whatever the times between two pieces; silence is a 504, or an error event after output."""

    async def moving(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for number in range(15):
            await exchange.chunk(event(str(number)))
            await asyncio.sleep(0.1)
        await exchange.chunk(DONE)
        await exchange.end_stream()

    async def stops(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event())
        await silent(exchange)

    async with scripted_worker(moving) as worker, running_gateway(worker, first_byte=0.5, idle=0.5) as running:
        answer = await running.ask(stream=True)
        assert (answer.body.count(b"data:"), answer.whole) == (16, True)
        worker.script = silent
        assert (await running.ask(stream=True)).error["code"] == "upstream_timeout"
        worker.script = stops
        assert b'data: {"error":' in (await running.ask(stream=True)).body


async def test_c_18_a_connection_closed_just_as_it_is_used_again_costs_nothing() -> None:
    """C-18: requests as far apart as the worker's keep-alive; no client sees it and nothing runs twice."""
    chance = random.Random(18)
    async with scripted_worker(keep_alive_seconds=1.0) as worker, running_gateway(worker) as running:

        async def series(number: int) -> list[int]:
            statuses = []
            for turn in range(5):
                text = [{"role": "user", "content": f"{number} {turn}"}]
                statuses.append((await running.ask(messages=text)).status)
                await asyncio.sleep(1.0 + chance.uniform(-0.005, 0.005))
            return statuses

        assert {status for some in await asyncio.gather(*map(series, range(12))) for status in some} == {200}
        assert len({exchange.body for exchange in worker.exchanges}) == len(worker.exchanges) == 60


async def test_c_21_large_bodies_pass_up_to_a_limit_that_is_named() -> None:
    """C-21: an image of 2 MB reaches the worker; over the limit is a 413 with the number, by length or in chunks."""
    url = "data:image/png;base64," + "A" * 2_000_000
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}
    ).encode()
    async with one_worker(body_bytes=3 * MIB) as (running, worker):
        assert (await running.ask(body=body)).status == 200
        assert url.encode() in worker.exchanges[0].body
        large = body + b" " * (2 * MIB)
        for wire, headers in ((large, {}), (chunked(large), {"transfer-encoding": "chunked"})):
            answer = await running.ask(body=wire, headers=headers)
            assert (answer.status, answer.error["code"]) == (413, "request_too_large")
            assert str(3 * MIB) in answer.error["message"]
        assert len(worker.exchanges) == 1


async def test_c_23_a_compressed_request_goes_where_its_plain_text_went() -> None:
    """C-23: the same home as plain, plain at the worker, and an encoding that is not spoken is a 415."""
    prompts = [f"{number} " + "word " * 2000 for number in range(6)]
    async with scripted_worker() as a, scripted_worker() as b, scripted_worker() as c:
        async with running_gateway(a, b, c) as running:
            for prompt in prompts:
                body = json.dumps({"model": "m", "messages": [{"role": "user", "content": prompt}]}).encode()
                plain = await running.ask(body=body, key="curious-key", headers={"x-homing-debug": "1"})
                for encoding, wire in (("gzip", gzip.compress(body)), ("zstd", zstd.compress(body))):
                    headers = {"content-encoding": encoding, "x-homing-debug": "1"}
                    answer = await running.ask(body=wire, key="curious-key", headers=headers)
                    assert answer.fields["x-homing-backend"] == plain.fields["x-homing-backend"]
            assert (await running.ask(headers={"content-encoding": "foo"})).status == 415
        for worker in (a, b, c):
            assert all(exchange.field("content-encoding") is None for exchange in worker.exchanges)
            assert all(
                len(exchange.body) == int(exchange.field("content-length") or 0) for exchange in worker.exchanges
            )


async def test_c_24_a_client_that_asks_first_is_answered_at_once() -> None:
    """C-24: 100 for a good key and a body that may come, 401 or 413 and no 100 otherwise; it goes no further."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 3_000_000}]}).encode()
    async with one_worker() as (running, worker):
        for key, length, status in (("acme-key", len(body), 100), ("wrong", len(body), 401), ("acme-key", 2**40, 413)):
            headers = {"expect": "100-continue", "content-length": str(length)}
            client = await running.connect()
            began = time.monotonic()
            await client.send(build_request(key=key, body=b"", headers=headers))
            assert (await client.head())[0] == status
            assert time.monotonic() - began < 0.5
            if status == 100:
                await client.send(body)
                assert (await client.answer()).status == 200
            client.close()
        assert [exchange.field("expect") for exchange in worker.exchanges] == [None]


async def test_c_25_a_client_that_does_not_read_costs_little_and_not_for_long() -> None:
    """C-25: of 200 MB a few are taken from the worker, which waits; then the client is dropped and nothing is left."""

    async def flood(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for _ in range(3200):
            await exchange.chunk(event("x" * 65536))

    async with one_worker(flood, client_timeouts={"write_seconds": 1.0}) as (running, worker):
        await running.ask(stream=True, key="wrong")
        before = resident_bytes()
        client = await running.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(build_request(stream=True))
        most = before
        while not worker.exchanges or worker.live:
            most = max(most, resident_bytes())
            await asyncio.sleep(0.02)
        print(f"{(most - before) / MIB:.1f} MiB more at most")
        assert most - before < 20 * MIB
        await until(running.settled)
        client.abort()


async def test_c_28_a_stream_may_be_as_long_as_it_likes() -> None:
    """C-28: 50 MB of events; no limit counts what is passed on."""

    async def long(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for _ in range(800):
            await exchange.chunk(event("x" * 65536))
        await exchange.chunk(DONE)
        await exchange.end_stream()

    async with one_worker(long) as (running, _):
        client = await running.connect()
        await client.send(build_request(stream=True))
        await client.head()
        size, last = await drained(client)
        assert (size > 50 * MIB, last.endswith(DONE)) == (True, True)
        client.close()


async def test_c_29_many_open_streams_leave_the_health_page_quick() -> None:
    """C-29: scaled to 150 streams; they all end whole, and an HTTP/1.0 client's ends by the close."""

    async def ticking(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for _ in range(3):
            await exchange.chunk(event())
            await asyncio.sleep(0.3)
        await exchange.chunk(DONE)
        await exchange.end_stream()

    async with one_worker(ticking) as (running, worker):
        asked = [asyncio.create_task(running.ask(stream=True)) for _ in range(150)]
        await until(lambda: worker.live > 125, seconds=20)
        took = []
        while worker.live and len(took) < 50:
            began = time.monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.admin_port)
            writer.write(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            took.append(time.monotonic() - began)
            writer.close()
        assert sorted(took)[len(took) // 2] < 1.0
        assert all(answer.body.endswith(DONE) and answer.whole for answer in await asyncio.gather(*asked))
        old = await running.ask(stream=True, version="1.0")
        assert ("transfer-encoding" in old.fields, old.body.endswith(DONE)) == (False, True)


CANARY = "sk-CANARY-" + "0123456789" * 1200


@pytest.mark.parametrize("name", ["Authorization", "authorization", "AUTHORIZATION", "X-Api-Key"])
async def test_f_09_an_over_long_key_is_quoted_nowhere(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """F-09: 431 with a fixed text, and of a bad request line or two framings a 400; the key in no log, no body."""
    caplog.set_level(logging.DEBUG)
    framings = "content-length: 5\r\ntransfer-encoding: chunked\r\n"
    wires = [
        (f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n{name}: Bearer {CANARY}\r\n\r\n", 431),
        (f"POST /{CANARY} HTTP/1.1\r\nhost: a\r\n\r\n", 431),
        (f"POST /sk-CANARY-1 HTTP/1.1 x\r\nhost: a\r\n{name}: Bearer sk-CANARY-2\r\n\r\n", 400),
        (f"POST /v1/completions HTTP/1.1\r\nhost: a\r\n{name}: Bearer sk-CANARY-3\r\n{framings}\r\n0\r\n\r\n", 400),
        (f"POST /v1/completions HTTP/1.1\r\nhost: a\r\n{name}: Bearer sk-CANARY-4\x00\r\n\r\n", 400),
    ]
    async with one_worker() as (running, _):
        for wire, status in wires:
            answer = await running.send(wire.encode())
            assert (answer.status, answer.error["type"]) == (status, "invalid_request_error")
            assert "CANARY" not in answer.body.decode() + str(answer.fields)
    assert "CANARY" not in caplog.text


async def test_f_12_a_second_request_is_one_for_both_or_for_neither() -> None:
    """F-12: two lengths, a length and chunks, bare line feeds, requests within bodies (all of them in `hostile/`)."""
    inner = build_request(n=2)
    wires = {
        build_request(body=b"0\r\n\r\n" + inner, headers={"content-length": "5", "transfer-encoding": "chunked"}): 0,
        build_request(headers={"content-length": "5\r\ncontent-length: 6"}): 0,
        build_request(headers={"content-length": "+5"}): 0,
        build_request().replace(b"\r\n", b"\n"): 0,
        build_request(body=b"{}" + inner, headers={"content-length": "2"}): 1,
        build_request() + inner: 2,
    }
    for wire, requests in wires.items():
        async with one_worker(client_timeouts={"keep_alive_seconds": 0.5}) as (running, worker):
            client = await running.connect()
            await client.send(wire)
            answers = await asyncio.wait_for(client.reader.read(), 10)
            assert len(worker.exchanges) == answers.count(b"HTTP/1.1 200 OK") == requests
            for exchange in worker.exchanges:
                assert exchange.head.lower().count(b"content-length") == 1
                assert b"transfer-encoding" not in exchange.head.lower()
            client.close()


@cache
def bomb(encoding: str, mebibytes: int) -> bytes:
    if encoding == "zstd":
        return zstd.compress(bytes(mebibytes * MIB))
    squeeze = zlib.compressobj(level=1, wbits=31)
    return b"".join([squeeze.compress(bytes(MIB)) for _ in range(mebibytes)]) + squeeze.flush()


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_f_14_a_body_that_inflates_is_refused_in_bounded_memory(encoding: str, framing: str) -> None:
    """F-14: 256 MB out of little is a 413, and less than 64 MB more memory; what else is costly: test_json_bounds."""
    wire = bomb(encoding, 256)
    headers = {"content-encoding": encoding}
    if framing == "chunks":
        wire, headers["transfer-encoding"] = chunked(wire), "chunked"
    async with one_worker() as (running, worker):
        await running.ask()
        before, most = resident_bytes(), 0
        asked = asyncio.create_task(running.ask(body=wire, headers=headers))
        while not asked.done():
            most = max(most, resident_bytes() - before)
            await asyncio.sleep(0.005)
        assert (await asked).status == 413
        assert most < 64 * MIB
        assert len(worker.exchanges) == 1


MESSAGE = b'{"model":"m","messages":%b}'
BODIES = [b"[]", b"null", b'"x"', b"{", b"", b"\xff\xfe", MESSAGE % b"null", MESSAGE % b"[1]", MESSAGE % b"[{}]"]
BODIES += [MESSAGE % b'[{"role":"user","content":"\xff"}]', MESSAGE % (b"[" * 5000), MESSAGE % (b"[" * 70 + b"]" * 70)]


async def test_d_15_what_is_no_request_is_a_400_and_no_stack_trace(caplog: pytest.LogCaptureFixture) -> None:
    """D-15: in the OpenAI shape each; the connection goes on, for nothing is wrong with it."""
    async with one_worker() as (running, worker):
        client = await running.connect()
        for body in BODIES:
            await client.send(build_request(body=body))
            answer = await client.answer()
            assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        await client.send(build_request())
        assert (await client.answer()).body == answer_json()
        assert len(worker.exchanges) == 1
        client.close()
    assert "Traceback" not in caplog.text
