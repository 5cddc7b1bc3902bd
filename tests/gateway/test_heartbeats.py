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
LATE = 0.2
HEARTBEAT = b": heartbeat\n\n"
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
TOKENS = event("one") + event("two") + event("three") + DONE
ASKS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    "/v1/chat/completions": ({}, HEARTBEAT, TOKENS),
    "/v1/responses": ({"input": "hi"}, HEARTBEAT, b"".join(response_events("one", "北京🙂"))),
    "/v1/messages": ({"max_tokens": 9}, PING, b"".join(message_events("one", "北京🙂"))),
}


def late(script: Script, seconds: float = LATE) -> Script:
    """The same after a while in which nothing is said."""

    async def waits(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await script(exchange)

    return waits


def split(body: bytes, beat: bytes = HEARTBEAT) -> tuple[int, bytes]:
    """How many heartbeats a body begins with, and the rest."""
    count = 0
    while body.startswith(beat):
        count, body = count + 1, body.removeprefix(beat)
    return count, body


async def streamed(running: Running, path: str = "/v1/chat/completions", **fields: Any) -> Answer:
    return await running.send(build_request(path, stream=True, **fields))


@pytest.mark.parametrize("path", list(ASKS))
async def test_heartbeats_come_before_the_first_byte_and_the_stream_after_them_is_whole(path: str) -> None:
    """Case C-14: three or more, then the worker's bytes, in every dialect."""
    fields, beat, expected = ASKS[path]
    async with scripted_worker(late(as_vllm)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        answer = await streamed(running, path, **fields)
        count, rest = split(answer.body, beat)
        assert (answer.status, answer.whole, rest) == (200, True, expected)
        assert answer.fields["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.fields["x-accel-buffering"] == "no"
        assert count >= 3
        await until(running.settled)


async def test_without_the_setting_nothing_is_added() -> None:
    """Case C-14: off by default."""
    async with scripted_worker(late(stream)) as worker, running_gateway(worker) as running:
        assert (await streamed(running)).body == TOKENS


async def test_a_quick_stream_and_a_whole_answer_have_none() -> None:
    """The head is the worker's then."""
    async with scripted_worker(late(as_vllm, 0.08)) as worker, running_gateway(worker, heartbeat=0.03) as running:
        answer = await running.ask()
        assert answer.fields["content-type"] == "application/json"
    async with scripted_worker(stream) as worker, running_gateway(worker, heartbeat=5.0) as running:
        assert (await streamed(running)).body == TOKENS


async def test_a_part_of_an_event_does_not_stop_them_and_they_never_cut_one() -> None:
    """Only whole events are sent, so a heartbeat always stands between two."""

    async def halves(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(TOKENS[:20])
        await asyncio.sleep(LATE)
        await exchange.chunk(TOKENS[20:])
        await exchange.end_stream()

    async with scripted_worker(halves) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        count, rest = split((await streamed(running)).body)
        assert count >= 3
        assert rest == TOKENS


async def test_after_heartbeats_another_worker_is_still_tried() -> None:
    """Not a byte of an answer was sent."""
    failing = late(lambda exchange: _reset(exchange))
    async with scripted_worker() as one, scripted_worker() as other:
        one.scripts, other.scripts = [failing], [failing]
        async with running_gateway(one, other, heartbeat=EVERY) as running:
            first = asyncio.ensure_future(streamed(running))
            await until(lambda: len(one.exchanges) + len(other.exchanges) > 0)
            one.scripts, other.scripts = [], []
            count, rest = split((await first).body)
            assert count >= 3
            assert rest == TOKENS
            assert len(one.exchanges) + len(other.exchanges) == 2


async def _reset(exchange: Exchange) -> None:
    exchange.reset()


@pytest.mark.parametrize("path", list(ASKS))
async def test_a_failure_after_them_is_told_in_band(path: str) -> None:
    """The head has left with 200: an error event ends the stream, and nothing that looks like an end."""
    fields, beat, _ = ASKS[path]
    async with scripted_worker(late(_reset)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        answer = await streamed(running, path, **fields)
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
async def test_a_refusal_after_them_is_told_in_band(status: str, body: bytes, words: str, kind: str) -> None:
    """The worker's words, which no head can carry any more."""

    async def refuses(exchange: Exchange) -> None:
        await exchange.send_json(body, status=status)

    async with scripted_worker(late(refuses)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        count, rest = split((await streamed(running)).body)
        assert count >= 3
        error = json.loads(rest.removeprefix(b"data: "))["error"]
        assert (error["message"], error["type"]) == (words, kind)


async def test_an_http_1_0_client_gets_them_without_chunks() -> None:
    """The stream ends by the close."""
    async with scripted_worker(late(stream)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        answer = await running.send(build_request(stream=True, version="1.0"))
        assert "transfer-encoding" not in answer.fields
        assert split(answer.body)[1] == TOKENS


async def test_a_client_that_leaves_during_them_frees_everything() -> None:
    """The worker sees the connection close."""
    async with scripted_worker(late(stream, 5.0)) as worker, running_gateway(worker, heartbeat=EVERY) as running:
        client = await running.connect()
        await client.send(build_request(stream=True))
        await client.head()
        assert await client.chunk() == HEARTBEAT
        client.abort()
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="499") == 1
