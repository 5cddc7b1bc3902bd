"""Each phase of a connection has its time: head, body, idling, answer; and a number, in connections and pipelines."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from aiohttp.web import BaseRequest

from gateway.client_answer import ClientAnswer
from gateway.server import Route
from tests.gateway.running_gateway import Client, Running, build_request
from tests.gateway.scripted_worker import DONE, Exchange, event, silent, until
from tests.gateway.test_proxy import one_worker

SHORT = {"header_seconds": 0.2, "keep_alive_seconds": 0.4, "body_seconds": 0.2, "write_seconds": 0.3}
HEAD = build_request().partition(b"\r\n\r\n")[0]


async def closed_after(client: Client) -> float:
    started = time.monotonic()
    assert await client.closed()
    return time.monotonic() - started


async def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    """Row E5: aiohttp would keep it for an hour. A word might be taken for the next answer."""
    async with one_worker(client_timeouts=SHORT) as (running, _):
        client = await running.connect()
        assert 0.1 < await closed_after(client) < 2.0
        await until(lambda: running.gateway.server.connections.open == 0)
        assert running.count("client_connections_closed_total", reason="slow_head") == 1


@pytest.mark.parametrize("before", [b"", build_request()])
async def test_a_head_that_does_not_end_is_a_408(before: bytes) -> None:
    """Row E5: the first one, or one behind an answer; wherever it stops. Of empty lines: test_framed_bodies."""
    begun = (b"P", b"\r\nP", HEAD, HEAD + b"\r\n", HEAD + b"\r\nx: y\r")
    async with one_worker(client_timeouts=SHORT) as (running, worker):

        async def stop_at(piece: bytes) -> None:
            client = await running.connect()
            if before:
                await client.send(before)
                assert (await client.answer()).status == 200
            await client.send(piece)
            started = time.monotonic()
            answer = await client.answer()
            assert (answer.status, answer.fields["connection"]) == (408, "close"), piece
            assert answer.error["message"] == "The request's head came too slowly."
            assert time.monotonic() - started < 2.0
            assert await client.closed()

        await asyncio.gather(*map(stop_at, begun))
        assert len(worker.exchanges) == (len(begun) if before else 0)


async def test_a_byte_now_and_then_does_not_keep_a_head_alive() -> None:
    """Slowloris: the time runs from the first byte."""
    async with one_worker(client_timeouts=SHORT) as (running, _):
        client = await running.connect()
        started = time.monotonic()
        for byte in HEAD * 10:
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
            if running.gateway.server.connections.open == 0:
                break
        assert time.monotonic() - started < 2.0


async def test_a_head_in_pieces_is_a_head() -> None:
    """As long as it comes in time."""
    async with one_worker() as (running, _):
        client = await running.connect()
        for _ in range(2):
            for byte in build_request():
                client.writer.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.answer()).status == 200
        client.close()


async def test_a_kept_connection_is_closed_when_it_idles_too_long() -> None:
    """And not before: a head's shorter time is not for it."""
    async with one_worker(client_timeouts=SHORT) as (running, _):
        client = await running.connect()
        await client.send(build_request())
        assert (await client.answer()).status == 200
        assert 0.3 < await closed_after(client) < 2.0


async def test_a_head_without_end_is_a_431() -> None:
    """Many small fields, none too long by itself."""
    async with one_worker() as (running, _):
        client = await running.connect()
        client.writer.write(HEAD + b"\r\n")
        answer = asyncio.create_task(client.answer())
        for number in range(50):
            if answer.done():
                break
            client.writer.write(b"x-%d: %b\r\n" % (number, b"y" * 8000))
            await asyncio.sleep(0.001)
        assert (await answer).error["code"] == "head_too_large"
        assert running.count("client_connections_closed_total", reason="large_head") == 1
        assert await client.closed()


async def test_more_fields_than_anybody_needs_are_refused() -> None:
    """A hundred may come."""
    async with one_worker() as (running, worker):
        assert (await running.ask(headers={f"x-{n}": "y" for n in range(90)})).status == 200
        assert (await running.ask(headers={f"x-{n}": "y" for n in range(110)})).status == 400
        assert len(worker.exchanges) == 1


async def test_over_the_cap_the_oldest_idle_connection_gives_way() -> None:
    """Row E4: one at work stays, and the newcomer is served."""
    async with one_worker(connections=3) as (running, worker):
        first, second, third = [await running.connect() for _ in range(3)]
        for client in (first, second, third):
            await client.send(build_request())
            assert (await client.answer()).status == 200
        await first.send(build_request())
        assert (await first.answer()).status == 200
        newcomer = await running.connect()
        await newcomer.send(build_request())
        assert (await newcomer.answer()).status == 200
        assert await second.closed()
        assert running.count("client_connections_closed_total", reason="too_many") == 1
        for client in (first, third, newcomer):
            await client.send(build_request())
            assert (await client.answer()).status == 200
            client.close()
        assert len(worker.exchanges) == 8


async def test_over_the_cap_with_everybody_at_work_the_newcomer_is_told() -> None:
    """503 with a hint when to come back; the others are not disturbed."""
    release = asyncio.Event()

    async def wait(exchange: Exchange) -> None:
        await release.wait()
        await exchange.send_json()

    async with one_worker(wait, connections=2) as (running, worker):
        clients = [await running.connect() for _ in range(2)]
        for client in clients:
            await client.send(build_request())
        await until(lambda: worker.live == 2)
        running.gateway.metrics.refresh()
        assert (
            running.count("client_connections", state="busy"),
            running.count("client_connections", state="idle"),
        ) == (2, 0)
        newcomer = await running.connect()
        answer = await newcomer.answer()
        assert (answer.status, answer.error["code"]) == (503, "too_many_connections")
        assert answer.fields["retry-after"] == "1"
        release.set()
        for client in clients:
            assert (await client.answer()).status == 200
            client.close()
        newcomer.close()
        await until(lambda: running.gateway.server.connections.open == 0)


async def test_no_more_than_eight_requests_wait_on_one_connection() -> None:
    """Row E6: the rest stays in the socket, and all are answered in order."""
    gate = asyncio.Event()

    async def echo(exchange: Exchange) -> None:
        await gate.wait()
        await exchange.send_json(b'{"n":%d}' % exchange.asked["n"])

    async with one_worker(echo) as (running, worker):
        client = await running.connect()
        await client.send(b"".join(build_request(n=number) for number in range(40)))
        await until(lambda: worker.live == 1)
        (handler,) = running.gateway.server._http.connections
        await until(lambda: len(handler._messages) == 8)
        await asyncio.sleep(0.05)
        assert len(handler._messages) == 8
        gate.set()
        assert [(await client.answer()).json["n"] for _ in range(40)] == list(range(40))
        client.close()


@pytest.mark.parametrize("pipelined", [3, 40])
@pytest.mark.parametrize("abort", [False, True])
async def test_a_client_that_leaves_takes_its_whole_pipeline_along(pipelined: int, abort: bool) -> None:
    """Row E6: also where so much waits that it is not read on, which is how loops hear of a close."""
    async with one_worker(silent) as (running, worker):
        client = await running.connect()
        await client.send(build_request() * pipelined)
        await until(lambda: worker.live == 1)
        (client.abort if abort else client.close)()
        await until(running.settled)
        await until(lambda: running.gateway.server.connections.open == 0)
        assert len(worker.exchanges) == 1


async def test_a_pipeline_whose_answers_nobody_reads_stops() -> None:
    """Answers must not gather in memory: a request waits for the answer before it to be taken, then all is given up."""
    big = json.dumps({"text": "x" * 2_000_000}).encode()

    async def huge(exchange: Exchange) -> None:
        await exchange.send_json(big)

    async with one_worker(huge, client_timeouts=SHORT) as (running, worker):
        client = await running.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(build_request() * 30)
        await until(lambda: running.gateway.server.connections.open == 0)
        assert len(worker.exchanges) < 8
        client.abort()


async def test_an_answer_that_is_not_taken_is_given_up_after_the_close() -> None:
    """Row E3: what is left of a complete answer when its connection is closed has its time too."""

    async def large(_request: BaseRequest, answer: ClientAnswer) -> None:
        answer.whole(200, b"", b"x" * 20_000_000)

    async with one_worker(client_timeouts=SHORT) as (running, _):
        running.gateway.server._routes["/large"] = Route("GET", large)
        for headers in ({"connection": "close"}, {}):
            client = await running.connect()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(build_request("/large", method="GET", headers=headers))
            await until(lambda: running.gateway.server.connections.open == 1)
            await until(lambda: running.gateway.server.connections.open == 0)
            client.abort()
        assert running.count("client_connections_closed_total", reason="unread") == 2


async def test_a_half_closed_client_has_left() -> None:
    """Row E2: its end of the stream is all that a close shows; half a close asks nothing more either."""
    async with one_worker(silent) as (running, worker):
        client = await running.connect()
        await client.send(build_request())
        await until(lambda: worker.live == 1)
        client.writer.write_eof()
        await until(lambda: worker.exchanges[0].client_gone_at is not None)
        await until(running.settled)


async def stream_with_pauses(exchange: Exchange) -> None:
    await exchange.begin_stream()
    for number in range(10):
        await exchange.chunk(event(str(number)))
        await asyncio.sleep(0.1)
    await exchange.chunk(DONE)
    await exchange.end_stream()


async def open_stream(running: Running) -> Client:
    client = await running.connect()
    await client.send(build_request(stream=True))
    await client.head()
    return client


async def test_a_stream_outlives_every_time_of_the_client_side() -> None:
    """Case C-16: the times are for phases, none for the whole."""
    async with one_worker(stream_with_pauses, client_timeouts=SHORT) as (running, _):
        client = await open_stream(running)
        got = b""
        while payload := await client.chunk():
            got += payload
        assert got.count(b"data:") == 11
        client.close()
