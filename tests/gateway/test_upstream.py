"""One attempt at one worker: what comes through, what is a fault, and which connections are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from gateway.addresses import WorkerAddress
from gateway.upstream import Timeouts, Upstream
from gateway.upstream_connection import Cause, Connection, UpstreamFault
from tests.gateway.scripted_worker import (
    Exchange,
    ScriptedWorker,
    answer_json,
    close_at_once,
    event,
    ordinary,
    raw,
    refused_port,
    reset_at_once,
    scripted_worker,
    silent,
    stream_then,
    until,
)

BODY = b'{"model":"m"}'
STREAM_BODY = b'{"model":"m","stream":true}'


def build_head(body: bytes) -> bytes:
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: w\r\ncontent-length: %d\r\n\r\n" % len(body)


def target_of(worker: ScriptedWorker) -> WorkerAddress:
    return WorkerAddress("127.0.0.1", worker.port)


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    pool = build_upstream()
    yield pool
    pool.check_integrity()
    pool.close()


def build_upstream(first_byte: float = 5.0, idle: float = 5.0, stale_after: float = 0.5, keep: float = 4.0) -> Upstream:
    timeouts = Timeouts(1.0, first_byte, first_byte, idle)
    return Upstream(timeouts, stale_after_seconds=stale_after, keep_idle_seconds=keep)


async def ask(pool: Upstream, worker: ScriptedWorker, body: bytes = BODY) -> tuple[int, bytes]:
    """A whole exchange; status and payload. Raises the fault it ends in."""
    connection = await pool.attempt(target_of(worker), build_head(body), body)
    try:
        return connection.answered_head.status, await read_all(connection)
    finally:
        pool.release(connection)


async def read_all(connection: Connection) -> bytes:
    pieces: list[bytes] = []
    connection.attach(pieces.append)
    while not connection.complete and connection.fault is None:
        await connection.wait()
    if connection.fault is not None:
        raise connection.fault
    return b"".join(pieces)


async def fault_of(pool: Upstream, worker: ScriptedWorker, body: bytes = BODY) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await ask(pool, worker, body)
    return caught.value


async def test_an_answer_comes_through_and_its_connection_serves_again(upstream: Upstream) -> None:
    """The ordinary case."""
    async with scripted_worker() as worker:
        for _ in range(3):
            assert await ask(upstream, worker) == (200, answer_json())
        assert (worker.connections, upstream.idle_count, upstream.busy_count) == (1, 1, 0)


async def test_a_stream_comes_through_without_its_framing(upstream: Upstream) -> None:
    """Chunks are the worker's business."""
    async with scripted_worker() as worker:
        _, body = await ask(upstream, worker, STREAM_BODY)
        assert body == event("one") + event("two") + event("three") + b"data: [DONE]\n\n"
        assert upstream.idle_count == 1


async def test_an_answer_of_single_bytes_comes_through(upstream: Upstream) -> None:
    """Head, sizes and payload cut everywhere."""

    async def dribble(exchange: Exchange) -> None:
        wire = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        for byte in wire:
            await exchange.send(bytes([byte]))
            await asyncio.sleep(0)

    async with scripted_worker(dribble) as worker:
        assert await ask(upstream, worker) == (200, b"hello")


async def test_interim_answers_are_skipped(upstream: Upstream) -> None:
    """100 Continue and 103 Early Hints come before the real head."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    async with scripted_worker(raw(interim + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")) as worker:
        assert await ask(upstream, worker) == (200, b"ok")


async def test_a_body_that_ends_by_the_close_is_whole(upstream: Upstream) -> None:
    """HTTP/1.0 workers; such a connection cannot be kept."""
    async with scripted_worker(raw(b"HTTP/1.0 200 OK\r\n\r\nall of it")) as worker:
        assert await ask(upstream, worker) == (200, b"all of it")
        assert upstream.idle_count == 0


async def test_an_answer_without_body_is_an_answer(upstream: Upstream) -> None:
    """Length zero."""
    async with scripted_worker(raw(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n", close=False)) as worker:
        assert await ask(upstream, worker) == (500, b"")


async def test_a_refused_connection_is_told_as_such(upstream: Upstream) -> None:
    """Nothing was sent: any other worker may be asked."""
    with pytest.raises(UpstreamFault) as caught:
        await upstream.attempt(WorkerAddress("127.0.0.1", refused_port()), build_head(BODY), BODY)
    assert (caught.value.cause, caught.value.answered) == (Cause.REFUSED, False)


@pytest.mark.parametrize("script", [reset_at_once, close_at_once])
async def test_a_break_before_the_answer_is_a_fault_and_not_tried_again(upstream: Upstream, script: object) -> None:
    """On a fresh connection the worker has read the request: nobody knows what it did with it."""
    async with scripted_worker(script) as worker:  # type: ignore[arg-type]
        fault = await fault_of(upstream, worker)
        assert (fault.cause, fault.answered, len(worker.exchanges)) == (Cause.BROKE, False, 1)


async def test_a_break_after_the_head_but_before_the_body_is_still_before_the_answer(upstream: Upstream) -> None:
    """vLLM sends its head before it computes; a crash in prefill comes after it."""
    async with scripted_worker(stream_then(0, reset_at_once)) as worker:
        with pytest.raises(UpstreamFault) as caught:
            await upstream.attempt(target_of(worker), build_head(BODY), BODY)
        assert (caught.value.cause, caught.value.answered) == (Cause.BROKE, True)


@pytest.mark.parametrize("end", [reset_at_once, close_at_once])
async def test_a_break_in_the_body_is_noticed(upstream: Upstream, end: object) -> None:
    """Row A2: an orderly close within a chunked body is a break too."""
    async with scripted_worker(stream_then(3, end)) as worker:  # type: ignore[arg-type]
        fault = await fault_of(upstream, worker)
        assert fault.cause is Cause.BROKE
        assert upstream.idle_count == 0


@pytest.mark.parametrize(
    "wire",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
        b"x" * 70_000,
    ],
)
async def test_garbage_is_a_fault_and_closes_the_connection(upstream: Upstream, wire: bytes) -> None:
    """Row A13."""
    async with scripted_worker(raw(wire, close=False)) as worker:
        assert (await fault_of(upstream, worker)).cause is Cause.MALFORMED
        await until(lambda: worker.exchanges[0].client_gone_at is not None)
        assert upstream.idle_count == 0


async def test_bytes_behind_an_answer_never_reach_another(upstream: Upstream) -> None:
    """Row A13: 0 bytes of one answer in another."""
    wire = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"
    async with scripted_worker(raw(wire, close=False)) as worker:
        worker.scripts = []
        assert await ask(upstream, worker) == (200, b"ok")
        assert upstream.idle_count == 0


async def test_bytes_on_a_resting_connection_end_it(upstream: Upstream) -> None:
    """A worker that speaks unasked cannot be trusted with the next request."""

    async def answer_and_talk_on(exchange: Exchange) -> None:
        await exchange.send_json(b"{}")
        await until(lambda: upstream.idle_count == 1)
        await exchange.send(b"HTTP/1.1 200 OK\r\n\r\n")

    async with scripted_worker(answer_and_talk_on) as worker:
        await ask(upstream, worker)
        await until(lambda: upstream.idle_count == 0)


async def test_a_worker_that_says_close_is_not_asked_on_that_connection_again(upstream: Upstream) -> None:
    """`Connection: close` is obeyed before the close arrives."""

    async def last_one(exchange: Exchange) -> None:
        await exchange.send_json(fields="connection: close\r\n")
        await exchange.client_gone()

    async with scripted_worker(last_one) as worker:
        await ask(upstream, worker)
        await ask(upstream, worker)
        assert worker.connections == 2


async def test_a_kept_connection_that_was_closed_meanwhile_is_replaced_once() -> None:
    """Case C-18: the worker's keep-alive timer fires as the connection is used again."""
    pool = build_upstream(stale_after=0.0)
    async with scripted_worker() as worker:
        await ask(pool, worker)
        worker.scripts = [reset_at_once]
        assert await ask(pool, worker) == (200, answer_json())
        assert worker.connections == 2
        worker.scripts = [reset_at_once, reset_at_once]
        assert (await fault_of(pool, worker)).cause is Cause.BROKE
        assert len(worker.exchanges) == 5
    pool.close()


async def test_a_connection_in_brisk_use_that_breaks_is_not_stale(upstream: Upstream) -> None:
    """Case C-20: its worker has read the request, so this was an attempt."""
    async with scripted_worker() as worker:
        await ask(upstream, worker)
        worker.scripts = [reset_at_once]
        assert (await fault_of(upstream, worker)).cause is Cause.BROKE
        assert len(worker.exchanges) == 2


async def test_a_worker_that_closes_idle_connections_costs_no_request() -> None:
    """Case C-18, scaled down: requests as far apart as the worker's keep-alive, again and again."""
    pool = build_upstream(stale_after=0.01)
    async with scripted_worker(keep_alive_seconds=0.02) as worker:
        for number in range(40):
            assert (await ask(pool, worker))[0] == 200
            await asyncio.sleep(0.018 + 0.0001 * number)
        assert len(worker.exchanges) == 40
    pool.close()


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    """Before the worker's own keep-alive does it."""
    pool = build_upstream(first_byte=0.1, idle=0.1, keep=0.02)
    async with scripted_worker() as worker:
        await ask(pool, worker)
        assert pool.idle_count == 1
        await until(lambda: pool.idle_count == 0)
    pool.close()


async def test_silence_before_the_first_byte_ends_in_time() -> None:
    """Row A5, and the worker sees the connection close."""
    pool = build_upstream(first_byte=0.1, idle=5.0)
    async with scripted_worker(silent) as worker:
        fault = await fault_of(pool, worker)
        assert (fault.cause, fault.answered) == (Cause.SILENT, False)
        await until(lambda: worker.exchanges[0].client_gone_at is not None)
        assert pool.busy_count == 0
    pool.close()


async def test_a_head_alone_is_no_first_byte() -> None:
    """The first byte of the body is what the caller waits for."""
    pool = build_upstream(first_byte=0.1, idle=5.0)
    async with scripted_worker(stream_then(0, silent)) as worker:
        assert (await fault_of(pool, worker)).cause is Cause.SILENT
    pool.close()


async def test_silence_between_bytes_ends_in_time() -> None:
    """Row A6; a stream that moves is never cut, however long it takes (case C-16)."""
    pool = build_upstream(first_byte=5.0, idle=0.1)

    async def slow_then_silent(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for _ in range(8):
            await asyncio.sleep(0.05)
            await exchange.chunk(event())
        await silent(exchange)

    async with scripted_worker(slow_then_silent) as worker:
        connection = await pool.attempt(target_of(worker), build_head(BODY), BODY)
        pieces: list[bytes] = []
        connection.attach(pieces.append)
        while connection.fault is None:
            await connection.wait()
        assert connection.fault.cause is Cause.SILENT
        assert b"".join(pieces) == event() * 8
        pool.release(connection)
    pool.close()


async def test_a_cancelled_attempt_closes_its_connection_at_once(upstream: Upstream) -> None:
    """Row E1: the worker stops working for nobody."""
    async with scripted_worker(silent) as worker:
        task = asyncio.create_task(ask(upstream, worker))
        await until(lambda: bool(worker.exchanges))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: worker.exchanges[0].client_gone_at is not None, seconds=0.5)
        assert upstream.busy_count == 0


async def test_a_paused_connection_makes_its_worker_wait(upstream: Upstream) -> None:
    """Backpressure: what is not read is not buffered here; and what was paused goes on whole."""
    sent_bytes = 0

    async def flood(exchange: Exchange) -> None:
        nonlocal sent_bytes
        await exchange.begin_stream()
        for _ in range(300):
            await exchange.chunk(b"x" * 65536)
            sent_bytes += 65536
        await exchange.end_stream()

    async with scripted_worker(flood) as worker:
        connection = await upstream.attempt(target_of(worker), build_head(BODY), BODY)
        received = 0

        def count(payload: bytes) -> None:
            nonlocal received
            received += len(payload)

        connection.attach(count)
        connection.pause()
        before = -1
        while before != sent_bytes:
            before = sent_bytes
            await asyncio.sleep(0.1)
        assert sent_bytes < 300 * 65536
        connection.resume()
        while not connection.complete:
            await connection.wait()
        assert received == 300 * 65536
        upstream.release(connection)


async def test_an_answer_that_came_before_the_request_was_read_costs_the_connection(upstream: Upstream) -> None:
    """What is still on its way out would be taken for the next request."""
    body = b'{"x":"' + b"y" * 20_000_000 + b'"}'

    async def refuse_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.close()

    server = await asyncio.start_server(refuse_early, "127.0.0.1", 0, limit=2**16)
    target = WorkerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    connection = await upstream.attempt(target, build_head(body), body)
    assert connection.answered_head.status == 413
    upstream.release(connection)
    assert upstream.idle_count == 0
    server.close()


async def test_closing_the_pool_fails_what_is_under_way(upstream: Upstream) -> None:
    """A gateway that leaves tells its callers why."""
    async with scripted_worker(stream_then(1, silent)) as worker:
        connection = await upstream.attempt(target_of(worker), build_head(BODY), BODY)
        upstream.close()
        assert connection.fault is not None
        assert connection.fault.cause is Cause.SHUTDOWN
        upstream.release(connection)


async def test_many_exchanges_at_once_do_not_mix(upstream: Upstream) -> None:
    """Row A3's plain half: each gets its own answer."""

    async def echo(exchange: Exchange) -> None:
        await asyncio.sleep(0.001 * (len(exchange.body) % 7))
        await exchange.send_json(exchange.body)

    async def one(number: int) -> None:
        body = b'{"n":%d}' % number
        assert await ask(upstream, worker, body) == (200, body)

    async with scripted_worker(echo) as worker:
        await asyncio.gather(*map(one, range(200)))
        upstream.check_integrity()
        assert upstream.busy_count == 0


async def test_the_ordinary_script_is_what_the_others_differ_from(upstream: Upstream) -> None:
    """The scripted worker itself: it records what it was sent."""
    async with scripted_worker(ordinary) as worker:
        await ask(upstream, worker)
        assert worker.exchanges[0].body == BODY
        assert worker.exchanges[0].field("host") == "w"


async def test_a_connection_that_the_process_itself_was_late_for_is_given_its_time_again() -> None:
    """A stall of the loop is longer than the connect time: the worker is not to blame, and not reported as away."""
    async with scripted_worker(ordinary) as worker:
        pool = Upstream(Timeouts(0.05, 5.0, 5.0, 5.0))
        asyncio.get_running_loop().call_soon(time.sleep, 0.3)
        assert (await ask(pool, worker))[0] == 200
        pool.close()
