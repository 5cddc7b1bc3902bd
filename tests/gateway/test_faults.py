"""Workers that refuse, break, stall and overload; clients that leave: who is told what, and what is tried again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import openai
import pytest

from tests.gateway.running_gateway import Running, build_request, running_gateway
from tests.gateway.scripted_worker import (
    DONE,
    Exchange,
    Script,
    answer_json,
    close_at_once,
    event,
    ordinary,
    plain_json,
    raw,
    refused_port,
    reset_at_once,
    scripted_worker,
    silent,
    stream_then,
    until,
)

STREAMS = pytest.mark.parametrize("stream", [False, True])


def refuse(running: Running, name: str) -> None:
    """From now on nobody listens where the worker is said to be."""
    worker = running.gateway.fleet.worker(name)
    worker.backend = replace(worker.backend, address=worker.backend.address._replace(port=refused_port()))


async def ask_many(running: Running, count: int, **fields: Any) -> list[int]:
    """So many different prompts, some at a time; the statuses."""
    gate = asyncio.Semaphore(16)

    async def one(number: int) -> int:
        async with gate:
            answer = await running.ask(messages=[{"role": "user", "content": f"{number} " * 40}], **fields)
            return answer.status if answer.whole else 0

    return await asyncio.gather(*map(one, range(count)))


async def overloaded(exchange: Exchange) -> None:
    await exchange.send_json(
        b'{"error":{"message":"busy"}}', status="503 Service Unavailable", fields="retry-after: 3\r\n"
    )


@STREAMS
async def test_a_refused_connection_is_tried_elsewhere(stream: bool) -> None:
    """Case C-20 and row A1: no client sees it, and the worker is known to be down after the first."""
    async with (
        scripted_worker() as worker,
        scripted_worker() as gone,
        running_gateway(worker, gone, policy="round_robin", probe_seconds=60) as running,
    ):
        refuse(running, "w2")
        assert set(await ask_many(running, 40, stream=stream)) == {200}
        await until(running.settled)
        assert running.count("upstream_retries_total", reason="refused") >= 1
        assert not running.gateway.fleet.worker("w2").up


@STREAMS
@pytest.mark.parametrize("script", [reset_at_once, close_at_once])
async def test_one_of_four_that_breaks_costs_no_client_an_answer(stream: bool, script: Script) -> None:
    """Row A1: it reads the request and breaks, again and again."""
    async with (
        scripted_worker(script) as bad,
        scripted_worker() as a,
        scripted_worker() as b,
        scripted_worker() as c,
        running_gateway(bad, a, b, c, probe_seconds=0.05) as running,
    ):
        assert set(await ask_many(running, 120, stream=stream)) == {200}
        await until(running.settled)
        assert len(bad.exchanges) > 0
        assert running.count("upstream_retries_total", reason="broke") == len(bad.exchanges)
        assert sum(len(worker.exchanges) for worker in (a, b, c)) == 120


async def test_a_request_that_ends_workers_ends_two_at_most() -> None:
    """Case C-20: at most two executions, never two alive."""
    async with (
        scripted_worker(reset_at_once) as a,
        scripted_worker(reset_at_once) as b,
        scripted_worker(reset_at_once) as c,
        running_gateway(a, b, c) as running,
    ):
        answer = await running.ask()
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
        ran = sorted((x.began_at, x.ended_at or 0.0) for worker in (a, b, c) for x in worker.exchanges)
        assert len(ran) == 2
        assert ran[0][1] <= ran[1][0]
        await until(running.settled)


async def test_a_worker_that_dies_between_head_and_first_byte_is_replaced() -> None:
    """vLLM sends its head before prefill: the client has seen nothing yet."""
    async with (
        scripted_worker(stream_then(0, reset_at_once)) as bad,
        scripted_worker() as good,
        running_gateway(bad, good, policy="round_robin", probe_seconds=60) as running,
    ):
        assert set(await ask_many(running, 4, stream=True)) == {200}
        assert len(bad.exchanges) >= 1


@pytest.mark.parametrize("end", [reset_at_once, close_at_once])
async def test_a_stream_that_breaks_ends_in_an_error_event_and_without_done(end: Script) -> None:
    """Case C-06 and row A2: never retried, never taken for complete."""
    async with scripted_worker(stream_then(3, end)) as worker, scripted_worker() as other:
        async with running_gateway(worker, other, probe_seconds=60) as running:
            answers = [
                await running.ask(stream=True, messages=[{"role": "user", "content": str(n)}]) for n in range(12)
            ]
        broken = [answer for answer in answers if not answer.body.endswith(DONE)]
        assert len(broken) == len(worker.exchanges) > 0
        for answer in broken:
            *tokens, last = answer.body.split(b"\n\n")[:-1]
            assert len(tokens) == 3
            error = json.loads(last.removeprefix(b"data: "))["error"]
            assert (error["type"], error["code"]) == ("server_error", "upstream_error")
            assert answer.whole
            assert b"[DONE]" not in answer.body
        assert len(worker.exchanges) + len(other.exchanges) == 12


async def test_a_stream_that_breaks_within_an_event_leaves_no_half_event() -> None:
    """The error event follows a whole one, whatever was cut: within a character, a chunk, a size line."""
    whole = event("北京🙂")
    cut = event("next")[:17]

    async def cut_off(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(whole + whole[:-9])
        await exchange.chunk(whole[-9:] + cut)
        exchange.reset()

    async with scripted_worker(cut_off) as worker, running_gateway(worker) as running:
        answer = await running.ask(stream=True)
        assert answer.body.startswith(whole + whole + b'data: {"error":')
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1


async def test_the_official_client_raises_on_a_stream_that_breaks() -> None:
    """Row A2: an SDK must not take it for an answer."""
    async with scripted_worker(stream_then(3, reset_at_once)) as worker, running_gateway(worker) as running:
        base_url = f"http://127.0.0.1:{running.gateway.api_port}/v1"
        client = openai.AsyncOpenAI(base_url=base_url, api_key="acme-key", max_retries=0)
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        got = [(await anext(stream)).choices[0].delta.content for _ in range(3)]
        with pytest.raises(openai.APIError) as caught:
            await anext(stream)
        assert got == ["t0", "t1", "t2"]
        assert caught.value.code == "upstream_error"
        await client.close()


async def test_a_stream_that_breaks_after_done_is_complete() -> None:
    """Nothing is missing: the caller has it all."""

    async def done_then_reset(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event() + DONE)
        exchange.reset()

    async with scripted_worker(done_then_reset) as worker, running_gateway(worker) as running:
        answer = await running.ask(stream=True)
        assert (answer.body, answer.whole) == (event() + DONE, True)
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="200") == 1


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    "head", [b"content-length: 1000\r\n", b"transfer-encoding: chunked\r\n", b"content-length: 20\r\n"]
)
async def test_a_plain_answer_that_breaks_never_looks_complete(head: bytes, version: str) -> None:
    """Promise 2: the connection is reset, for HTTP/1.0 too, where a close would mean the end."""
    body = b"5\r\nhello\r\n" if b"chunked" in head else b"hello"
    wire = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + head + b"\r\n" + body
    async with scripted_worker(raw(wire)) as worker, running_gateway(worker) as running:
        client = await running.connect()
        await client.send(build_request(version=version))
        try:
            answer = await client.answer()
            assert not answer.whole
        except ConnectionError:
            pass
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1


async def test_a_plain_answer_cut_by_the_close_is_noticed_by_its_json() -> None:
    """An HTTP/1.0 worker that dies looks like one that is done, but for the text."""
    wire = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n" + answer_json()[:50]
    async with scripted_worker(raw(wire)) as worker, running_gateway(worker) as running:
        client = await running.connect()
        await client.send(build_request())
        answer = None
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            answer = await client.answer()
        assert answer is None or not answer.whole or answer.status == 502


async def test_a_silent_worker_is_a_504_in_time_and_no_other_is_asked() -> None:
    """Case C-16 and row A5; the worker sees the connection close."""
    async with (
        scripted_worker(silent) as one,
        scripted_worker(silent) as other,
        running_gateway(one, other, first_byte=0.2) as running,
    ):
        started = time.monotonic()
        answer = await running.ask(stream=True)
        assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
        assert 0.15 < time.monotonic() - started < 1.2
        (exchange,) = one.exchanges + other.exchanges
        await until(lambda: exchange.client_gone_at is not None)
        await until(running.settled)


async def test_a_stream_that_stalls_ends_in_an_error_event_in_time() -> None:
    """Case C-16 and row A6."""
    async with scripted_worker(stream_then(3, silent)) as worker, running_gateway(worker, idle=0.2) as running:
        answer = await running.ask(stream=True)
        assert answer.body.startswith(event("t0") + event("t1") + event("t2") + b'data: {"error":')
        assert b"[DONE]" not in answer.body
        await until(lambda: worker.exchanges[0].client_gone_at is not None)


async def test_a_stream_that_moves_is_never_cut() -> None:
    """Case C-16, scaled: five times the first-byte and the idle time."""

    async def slow(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for number in range(20):
            await exchange.chunk(event(str(number)))
            await asyncio.sleep(0.05)
        await exchange.chunk(DONE)
        await exchange.end_stream()

    async with scripted_worker(slow) as worker, running_gateway(worker, first_byte=0.2, idle=0.2) as running:
        answer = await running.ask(stream=True)
        assert (answer.body.count(b"data:"), answer.whole) == (21, True)


async def test_an_answer_that_is_not_streamed_may_take_longer_than_a_first_byte() -> None:
    """A worker sends it when it is complete: it has a bound of its own, and is silent only beyond that."""

    async def thoughtful(exchange: Exchange) -> None:
        await asyncio.sleep(0.6)
        await ordinary(exchange)

    async with scripted_worker(thoughtful) as worker:
        async with running_gateway(worker, first_byte=0.2, whole_answer=5.0) as running:
            assert (await running.ask()).status == 200
            assert (await running.ask(stream=True)).status == 504
        async with running_gateway(worker, first_byte=5.0, whole_answer=0.2) as running:
            assert (await running.ask()).status == 504


async def test_an_overloaded_worker_is_passed_over() -> None:
    """Its 503 came before the first byte of an answer: another may have room."""
    async with (
        scripted_worker(overloaded) as busy,
        scripted_worker() as free,
        running_gateway(busy, free, policy="round_robin", probe_seconds=60) as running,
    ):
        assert await ask_many(running, 10) == [200] * 10
        assert len(busy.exchanges) > 0
        assert running.count("upstream_retries_total", reason="overloaded") == len(busy.exchanges)
        assert running.gateway.fleet.worker("w1").up
        await until(running.settled)


async def test_an_overloaded_fleet_answers_with_the_workers_own_words() -> None:
    """With its hint when to come back; nobody is asked twice."""
    async with scripted_worker(overloaded) as a, scripted_worker(overloaded) as b, running_gateway(a, b) as running:
        answer = await running.ask()
        assert (answer.status, answer.fields["retry-after"]) == (503, "3")
        assert answer.json == {"error": {"message": "busy"}}
        assert len(a.exchanges) + len(b.exchanges) == 2
        await until(running.settled)


async def test_a_fleet_that_refuses_is_a_502_and_then_a_503_at_once() -> None:
    """Row A10: known to be down is told without trying, with a hint when to come back."""
    async with scripted_worker() as worker:
        async with running_gateway(worker, probe_seconds=60) as running:
            refuse(running, "w1")
            first, second = await running.ask(), await running.ask()
            assert (first.status, first.error["code"]) == (502, "upstream_error")
            assert (second.status, second.error["code"], second.fields["retry-after"]) == (503, "no_backend", "1")
            await until(running.settled)


async def leave_when(running: Running, ready: Any, *, abort: bool = False, **fields: Any) -> float:
    """Ask, wait until `ready`, and leave; the moment of leaving."""
    client = await running.connect()
    await client.send(build_request(**fields))
    await until(ready)
    left_at = time.monotonic()
    (client.abort if abort else client.close)()
    return left_at


@STREAMS
@pytest.mark.parametrize("abort", [False, True])
async def test_a_client_that_leaves_before_the_first_byte_frees_the_worker_at_once(stream: bool, abort: bool) -> None:
    """Case C-01 and row E1: 100 ms, a stream or not, by a close or a reset."""
    async with scripted_worker(silent) as worker, running_gateway(worker) as running:

        async def freed_after() -> float:
            before = len(worker.exchanges)
            left_at = await leave_when(running, lambda: worker.live == 1, stream=stream, abort=abort)
            await until(lambda: worker.exchanges[before].client_gone_at is not None)
            await until(running.settled)
            return (worker.exchanges[before].client_gone_at or 0) - left_at

        assert await within_a_tenth_of_a_second(freed_after)
        assert running.count("requests_total", tenant="acme", model="m", code="499") == len(worker.exchanges)
        assert running.gateway.fleet.worker("w1").up


async def within_a_tenth_of_a_second(measured: Callable[[], Awaitable[float]]) -> bool:
    """Whether what is measured stays below 100 ms; once more where it did not, as the machine may have been away."""
    return await measured() < 0.1 or await measured() < 0.1


async def test_a_client_that_leaves_in_mid_stream_frees_the_worker_at_once() -> None:
    """Row E1, and nothing stays counted as in flight (case B-05)."""
    async with scripted_worker(stream_then(2, silent)) as worker, running_gateway(worker) as running:

        async def freed_after() -> float:
            client = await running.connect()
            await client.send(build_request(stream=True))
            await client.head()
            assert await client.chunk()
            left_at = time.monotonic()
            client.close()
            exchange = worker.exchanges[-1]
            await until(lambda: exchange.client_gone_at is not None)
            return (exchange.client_gone_at or 0) - left_at

        for _ in range(20):
            assert await within_a_tenth_of_a_second(freed_after)
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="499") == len(worker.exchanges) >= 20


async def test_many_clients_that_leave_leave_nothing_behind() -> None:
    """Case B-05: gauges are back at zero, and the worker is asked on as before."""
    async with scripted_worker(silent) as worker, running_gateway(worker) as running:
        clients = [await running.connect() for _ in range(60)]
        for client in clients:
            await client.send(build_request(stream=True))
        await until(lambda: worker.live == 60)
        for client in clients:
            client.abort()
        await until(running.settled)
        worker.script = ordinary
        assert (await running.ask()).status == 200


async def test_a_kept_connection_closed_by_its_worker_costs_no_client_an_answer() -> None:
    """Case C-18 through the gateway, scaled to the shortest keep-alive that is told apart from a fault."""
    async with scripted_worker(plain_json, keep_alive_seconds=0.55) as worker, running_gateway(worker) as running:
        for number in range(8):
            answer = await running.ask()
            assert answer.status == 200
            await asyncio.sleep(0.546 + 0.001 * number)
        ids = {exchange.field("x-request-id") for exchange in worker.exchanges}
        assert len(ids) == len(worker.exchanges) == 8


SSE_UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


async def test_a_stream_that_ends_by_the_close_is_whole_only_with_done() -> None:
    """An HTTP/1.0 worker's death looks like its end, but for `[DONE]`."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        worker.scripts = [raw(SSE_UNTIL_CLOSE + event() + DONE), raw(SSE_UNTIL_CLOSE + event())]
        assert (await running.ask(stream=True)).body == event() + DONE
        broken = (await running.ask(stream=True)).body
        assert broken.startswith(event() + b'data: {"error":')
        assert b"[DONE]" not in broken


async def test_a_stream_that_breaks_before_its_first_whole_event_is_a_502() -> None:
    """Nothing has been sent: the caller gets a status, not a stream."""

    async def half_an_event(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event()[:20])
        exchange.reset()

    async with scripted_worker(half_an_event) as worker, running_gateway(worker) as running:
        answer = await running.ask(stream=True)
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
        assert len(worker.exchanges) == 1


async def test_an_event_without_end_is_a_fault_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for one event is bounded."""
    monkeypatch.setattr("gateway.sse.EVENT_LIMIT_BYTES", 100_000)

    async def endless(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event())
        for _ in range(20):
            await exchange.chunk(b"x" * 10_000)
        await exchange.client_gone()

    async with scripted_worker(endless) as worker, running_gateway(worker) as running:
        answer = await running.ask(stream=True)
        assert answer.body.startswith(event() + b'data: {"error":')
        await until(lambda: worker.exchanges[0].client_gone_at is not None)


@STREAMS
async def test_a_client_that_does_not_read_is_given_up(stream: bool) -> None:
    """Row E3: the worker is freed, and it is not blamed."""

    async def flood(exchange: Exchange) -> None:
        if stream:
            await exchange.begin_stream()
        else:
            await exchange.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(400):
            await exchange.chunk(event("x" * 65536))

    async with scripted_worker(flood) as worker, running_gateway(worker) as running:
        running.gateway.server._proxy._attempts._stalled_reader_seconds = 0.2
        client = await running.connect()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(build_request(stream=stream))
        await until(lambda: running.count("requests_total", tenant="acme", model="m", code="499") == 1)
        await until(lambda: worker.live == 0)
        await until(running.settled)
        assert running.gateway.fleet.worker("w1").standing.failures_in_a_row == 0
        client.abort()


async def test_a_shutdown_while_a_worker_is_silent_is_a_503() -> None:
    """Row D2 before the first byte: the caller is told to come back, and no other worker is asked."""
    async with scripted_worker(silent) as worker, running_gateway(worker, drain=0.1) as running:
        asked = asyncio.create_task(running.ask(stream=True))
        await until(lambda: worker.live == 1)
        await running.gateway.drain()
        answer = await asked
        assert (answer.status, answer.error["code"], answer.fields["retry-after"]) == (503, "gateway_shutdown", "1")
        assert len(worker.exchanges) == 1


async def test_every_attempt_at_an_isolated_tenants_request_is_salted_alike() -> None:
    """Rules of isolation, 4: never an unsalted body, on a retry either, and whatever the client says of salts."""
    async with (
        scripted_worker(reset_at_once) as bad,
        scripted_worker() as good,
        running_gateway(bad, good, policy="round_robin") as running,
    ):
        for number in range(4):
            salt = {"cache_salt": None} if number % 2 else {}
            assert (await running.ask(messages=[{"role": "user", "content": f"{number}"}], **salt)).status == 200
        salts = [exchange.asked["cache_salt"] for worker in (bad, good) for exchange in worker.exchanges]
        assert bad.exchanges
        assert len(set(salts)) == 1
        assert len(salts[0]) == 43
