"""Cancels in their turn: when one may be sent, and what runs on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.addresses import WorkerAddress
from gateway.cancels import DEATH_SECONDS, HELD_SECONDS, TRIAL_SECONDS, CancelPace
from gateway.upstream import Timeouts, Upstream
from gateway.upstream_connection import Connection
from tests.gateway.scripted_worker import Exchange, ScriptedWorker, scripted_worker, until

A, B, C = (WorkerAddress("127.0.0.1", port) for port in (1, 2, 3))


def test_a_worker_that_lives_gets_so_many_a_second() -> None:
    """The first is its trial; after that one every twentieth of a second."""
    pace = CancelPace(20)
    assert pace.wait_seconds(A, 0.0) == 0
    pace.cancelled(A, 0.0)
    assert pace.wait_seconds(A, 0.1) == pytest.approx(TRIAL_SECONDS - 0.1)
    assert pace.wait_seconds(A, TRIAL_SECONDS) == 0
    pace.cancelled(A, 1.0)
    assert pace.wait_seconds(A, 1.01) == pytest.approx(0.04)
    assert pace.wait_seconds(A, 1.05) == pytest.approx(0)


def test_workers_are_tried_one_after_another() -> None:
    """Nobody else's first cancel while one may still be dying of its own; those that were tried are not held up."""
    pace = CancelPace(20)
    pace.cancelled(A, 0.0)
    assert pace.wait_seconds(B, 0.1) > 0
    assert pace.wait_seconds(B, 0.3) == 0
    pace.cancelled(B, 0.3)
    assert pace.wait_seconds(C, 0.4) > 0
    assert pace.wait_seconds(A, 0.4) == 0


def test_after_two_deaths_none_is_sent_for_a_minute() -> None:
    """One death lets the next be tried at once; a break long after a cancel is no death of it."""
    pace = CancelPace(20)
    pace.cancelled(A, 0.0)
    pace.broke(A, 0.01)
    assert pace.wait_seconds(B, 0.02) == 0
    pace.cancelled(B, 0.02)
    pace.broke(B, 0.02 + DEATH_SECONDS + 0.1)
    assert pace.wait_seconds(C, 2.0) == 0
    pace.cancelled(B, 3.0)
    pace.broke(B, 3.1)
    assert pace.wait_seconds(C, 4.0) == pytest.approx(HELD_SECONDS + 0.01 - 4.0)
    assert pace.wait_seconds(C, HELD_SECONDS + 1) == 0


@asynccontextmanager
async def build_upstream(per_second: float | None) -> AsyncIterator[Upstream]:
    upstream = Upstream(Timeouts(1.0, 5.0, 5.0, 5.0), cancels_per_second=per_second)
    try:
        yield upstream
    finally:
        upstream.close()


def address_of(worker: ScriptedWorker) -> WorkerAddress:
    return WorkerAddress("127.0.0.1", worker.port)


async def begin(upstream: Upstream, worker: ScriptedWorker) -> Connection:
    body = b'{"stream": true}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: w\r\ncontent-length: %d\r\n\r\n" % len(body)
    return await upstream.attempt(address_of(worker), head, body)


async def test_what_waits_for_its_turn_runs_on_and_is_closed_in_its_turn() -> None:
    """Of three given up at once, one is closed at once, and the others after the trial, one after another."""

    async def endless(exchange: Exchange) -> None:
        await exchange.begin_stream()
        while True:
            await exchange.chunk(b"data: {}\n\n")
            await asyncio.sleep(0.01)

    async with scripted_worker(endless) as worker, build_upstream(4.0) as upstream:
        connections = [await begin(upstream, worker) for _ in range(3)]
        for connection in connections:
            upstream.release(connection)
        assert [connection.closed for connection in connections] == [True, False, False]
        assert upstream.busy_count == 2
        await until(lambda: upstream.busy_count == 1)
        await until(lambda: upstream.busy_count == 0 and worker.live == 0)
        assert upstream.idle_count == 0


async def test_what_ends_before_its_turn_leaves_a_connection_to_keep() -> None:
    """The answer is dropped, nothing is cancelled."""
    gate = asyncio.Event()

    async def short(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"data: {}\n\n")
        await gate.wait()
        await exchange.end_stream()

    async with scripted_worker(short) as worker, build_upstream(0.01) as upstream:
        connections = [await begin(upstream, worker) for _ in range(2)]
        for connection in connections:
            upstream.release(connection)
        gate.set()
        await until(lambda: upstream.busy_count == 0)
        assert upstream.idle_count == 1
        upstream.check_integrity()


async def test_without_the_setting_all_are_closed_at_once() -> None:
    """The default."""

    async def silent_stream(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(b"data: {}\n\n")
        await exchange.client_gone()

    async with scripted_worker(silent_stream) as worker, build_upstream(None) as upstream:
        connections = [await begin(upstream, worker) for _ in range(3)]
        for connection in connections:
            upstream.release(connection)
        assert all(connection.closed for connection in connections)
        await until(lambda: worker.live == 0)
