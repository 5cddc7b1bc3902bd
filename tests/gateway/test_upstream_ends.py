"""Ends of connections and of the pool that nobody may wait for, and workers that share a port."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.addresses import WorkerAddress
from gateway.upstream import Timeouts, Upstream
from gateway.upstream_connection import Cause, UpstreamFault
from tests.gateway.scripted_worker import Exchange, answer_json, refused_port, scripted_worker, silent, until
from tests.gateway.test_upstream import BODY, ask, build_head, build_upstream, target_of


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Whatever would open another file of this process fails."""
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def in_two_pieces(exchange: Exchange) -> None:
    body = answer_json()
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body[:9]))
    await asyncio.sleep(0.02)
    await exchange.send(body[9:])


async def until_closed(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\n\r\nfirst")
    await asyncio.sleep(0.02)
    exchange.close()


@pytest.mark.parametrize("script", [in_two_pieces, until_closed])
async def test_a_sink_that_fails_at_the_end_ends_the_exchange(script) -> None:
    """The deadline no longer counts then: its owner would hold a slot for ever."""

    def failing(_: bytes) -> None:
        if connection.complete:
            raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    async with scripted_worker(script) as worker:
        pool = build_upstream()
        connection = await pool.attempt(target_of(worker), build_head(BODY), BODY)
        connection.attach(failing)
        async with asyncio.timeout(2):
            while not (connection.complete or connection.fault):
                await connection.wait()
        assert connection.fault is not None
        assert connection.fault.cause is Cause.CLIENT
        pool.release(connection)
        assert pool.idle_count == pool.busy_count == 0
        pool.close()


async def test_after_its_end_the_pool_begins_nothing() -> None:
    """Whoever waited for a turn when the gateway's grace was over is told so: nobody watches deadlines any more."""
    async with scripted_worker(silent) as worker:
        pool = build_upstream()
        pool.close()
        async with asyncio.timeout(2):
            with pytest.raises(UpstreamFault) as caught:
                await ask(pool, worker)
        assert caught.value.cause is Cause.SHUTDOWN
        assert pool.busy_count == 0
        assert not worker.exchanges


async def test_a_connection_that_the_loop_is_about_to_close_is_not_used() -> None:
    """Between the worker's end of it and the word of it is one turn of the loop."""
    async with scripted_worker() as worker:
        pool = build_upstream()
        await ask(pool, worker)
        (kept,) = pool._idle[target_of(worker)]
        assert kept._transport is not None
        kept._transport.close()
        assert not kept.closed
        assert (await ask(pool, worker))[0] == 200
        assert (worker.connections, len(worker.exchanges)) == (2, 2)
        pool.close()


async def test_a_worker_is_not_dead_because_we_have_no_descriptor() -> None:
    """Its requests would be suspects, and it would be down."""
    async with scripted_worker() as worker:
        pool = build_upstream()
        with no_descriptor_left():
            assert await pool.listens(target_of(worker))
        assert await pool.listens(target_of(worker))
        assert not await pool.listens(WorkerAddress("127.0.0.1", refused_port()))
        pool.close()


async def test_workers_that_share_a_port_are_told_apart_by_their_paths() -> None:
    """One leaves: the other's requests stay, and it is not taken for hung for the other's silence."""
    async with scripted_worker(silent) as worker:
        pool = Upstream(Timeouts(1.0, 5.0, 5.0, 5.0))
        one, other = (WorkerAddress("127.0.0.1", worker.port, path) for path in ("/one", "/other"))
        tasks = [asyncio.create_task(pool.attempt(target, build_head(BODY), BODY)) for target in (one, other)]
        await until(lambda: len(worker.exchanges) == 2)
        assert len(pool.busy_at(one)) == pool.cut_off(one) == 1
        done, waiting = await asyncio.wait(tasks, timeout=0.2)
        assert (done, waiting) == ({tasks[0]}, {tasks[1]})
        pool.close()
        assert all(isinstance(each, UpstreamFault) for each in await asyncio.gather(*tasks, return_exceptions=True))
