"""Heartbeats before the first byte: on event borders only, in the caller's dialect, and still tried elsewhere."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.dialect_worker import as_vllm, message_events, response_events
from tests.gateway.running_gateway import Answer, Running, build_request, running_gateway
from tests.gateway.scripted_worker import DONE, Exchange, Script, event, scripted_worker, stream, until

EVERY = 0.03
BEATS = 3
HEARTBEAT = b": heartbeat\n\n"
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
TOKENS = event("one") + event("two") + event("three") + DONE
ASKS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    "/v1/chat/completions": ({}, HEARTBEAT, TOKENS),
    "/v1/responses": ({"input": "hi"}, HEARTBEAT, b"".join(response_events("one", "北京🙂"))),
    "/v1/messages": ({"max_tokens": 9}, PING, b"".join(message_events("one", "北京🙂"))),
}


def late(script: Script, gate: asyncio.Event) -> Script:
    """The same once the client has seen enough heartbeats."""

    async def waits(exchange: Exchange) -> None:
        await gate.wait()
        await script(exchange)

    return waits


def split(body: bytes, beat: bytes = HEARTBEAT) -> tuple[int, bytes]:
    """How many heartbeats a body begins with, and the rest."""
    count = 0
    while body.startswith(beat):
        count, body = count + 1, body.removeprefix(beat)
    return count, body


async def streamed(
    running: Running, gate: asyncio.Event, path: str = "/v1/chat/completions", beat: bytes = HEARTBEAT, **fields: Any
) -> Answer:
    """A stream, whose worker is let go on when three heartbeats have come."""
    client = await running.connect()
    async with asyncio.timeout(20):
        await client.send(build_request(path, stream=True, **fields))
        status, head = await client.head()
        body = b""
        while piece := await client.chunk():
            body += piece
            if body.count(beat) >= BEATS:
                gate.set()
    client.close()
    return Answer(status, head, body, True)


@pytest.fixture
def gate() -> asyncio.Event:
    return asyncio.Event()


@pytest.mark.parametrize("path", list(ASKS))
async def test_heartbeats_come_before_the_first_byte_and_the_stream_after_them_is_whole(
    path: str, gate: asyncio.Event
) -> None:
    """Case C-14: three or more, then the worker's bytes, in every dialect."""
    fields, beat, expected = ASKS[path]
    async with scripted_worker(late(as_vllm, gate)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        answer = await streamed(running, gate, path, beat, **fields)
        count, rest = split(answer.body, beat)
        assert (answer.status, answer.whole, rest) == (200, True, expected)
        assert answer.fields["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.fields["x-accel-buffering"] == "no"
        assert count >= 3
        await until(running.settled)


async def paused(exchange: Exchange) -> None:
    """An answer that takes a tenth of a second."""
    await asyncio.sleep(0.1)
    await as_vllm(exchange)


async def test_without_the_setting_nothing_is_added() -> None:
    """Case C-14: off by default."""
    async with scripted_worker(paused) as worker, running_gateway(worker) as running:
        assert (await running.send(build_request(stream=True))).body == TOKENS


async def test_a_quick_stream_and_a_whole_answer_have_none() -> None:
    """The head is the worker's then."""
    async with scripted_worker(paused) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        assert (await running.ask()).fields["content-type"] == "application/json"
    async with scripted_worker(stream) as worker, running_gateway(worker, heartbeat=30.0) as running:
        assert (await running.send(build_request(stream=True))).body == TOKENS


async def test_a_part_of_an_event_does_not_stop_them_and_they_never_cut_one(gate: asyncio.Event) -> None:
    """Only whole events are sent, so a heartbeat always stands between two."""

    async def halves(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(TOKENS[:20])
        await gate.wait()
        await exchange.chunk(TOKENS[20:])
        await exchange.end_stream()

    async with scripted_worker(halves) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        count, rest = split((await streamed(running, gate)).body)
        assert count >= 3
        assert rest == TOKENS


async def test_after_heartbeats_another_worker_is_still_tried(gate: asyncio.Event) -> None:
    """Not a byte of an answer was sent."""
    failing = late(_reset, gate)
    async with scripted_worker() as one, scripted_worker() as other:
        one.scripts, other.scripts = [failing], [failing]
        async with running_gateway(one, other, heartbeat=EVERY) as running:
            first = asyncio.ensure_future(streamed(running, gate))
            await until(lambda: len(one.exchanges) + len(other.exchanges) > 0)
            one.scripts, other.scripts = [], []
            count, rest = split((await first).body)
            assert count >= 3
            assert rest == TOKENS
            assert len(one.exchanges) + len(other.exchanges) == 2


async def _reset(exchange: Exchange) -> None:
    exchange.reset()


@pytest.mark.parametrize("path", list(ASKS))
async def test_a_failure_after_them_is_told_in_band(path: str, gate: asyncio.Event) -> None:
    """The head has left with 200: an error event ends the stream, and nothing that looks like an end."""
    fields, beat, _ = ASKS[path]
    async with scripted_worker(late(_reset, gate)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        answer = await streamed(running, gate, path, beat, **fields)
        count, rest = split(answer.body, beat)
        assert (answer.status, answer.whole, count >= 3) == (200, True, True)
        told = json.loads(rest.partition(b"data: ")[2])
        assert told["error"]["message"].startswith("The model server broke off")
        assert b"[DONE]" not in rest
        assert answer.fields.get("connection") != "close"
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1


@pytest.mark.parametrize(
    ("status", "body", "words", "kind"),
    [
        ("400 Bad Request", b'{"error":{"message":"too long"}}', "too long", "invalid_request_error"),
        ("500 Oops", b"<html>", "The model server answered with status 500.", "server_error"),
        ("200 OK", b'{"id":"1","choices":[]}', "The model server did not stream its answer.", "server_error"),
    ],
)
async def test_a_refusal_after_them_is_told_in_band(
    status: str, body: bytes, words: str, kind: str, gate: asyncio.Event
) -> None:
    """The worker's words, which no head can carry any more."""

    async def refuses(exchange: Exchange) -> None:
        await exchange.send_json(body, status=status)

    async with scripted_worker(late(refuses, gate)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        count, rest = split((await streamed(running, gate)).body)
        assert count >= 3
        error = json.loads(rest.removeprefix(b"data: "))["error"]
        assert (error["message"], error["type"]) == (words, kind)


async def test_an_http_1_0_client_gets_them_without_chunks(gate: asyncio.Event) -> None:
    """The stream ends by the close."""
    async with scripted_worker(late(stream, gate)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        client = await running.connect()
        await client.send(build_request(stream=True, version="1.0"))
        assert "transfer-encoding" not in (await client.head())[1]
        body = b""
        while piece := await client.reader.read(4096):
            body += piece
            if body.count(HEARTBEAT) >= BEATS:
                gate.set()
        assert split(body)[1] == TOKENS
        client.close()


async def test_a_client_that_leaves_during_them_frees_everything(gate: asyncio.Event) -> None:
    """The worker sees the connection close."""
    async with scripted_worker(late(stream, gate)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        client = await running.connect()
        await client.send(build_request(stream=True))
        await client.head()
        assert await client.chunk() == HEARTBEAT
        client.abort()
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="499") == 1
