"""Passing an answer on, at the one moment that sockets seldom show: a reader that catches up before anyone looked."""

from __future__ import annotations

import asyncio
import time
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from gateway.accounting import Accounts
from gateway.addresses import WorkerAddress
from gateway.client_answer import ClientAnswer
from gateway.dialects.openai import OPENAI
from gateway.metrics import Metrics
from gateway.relay import relay
from gateway.upstream import Timeouts, Upstream
from tests.gateway.scripted_worker import DONE, Exchange, Script, event, scripted_worker

HEAD = b"POST / HTTP/1.1\r\nhost: w\r\ncontent-length: %d\r\n\r\n"


class ReaderWhoCatchesUp:
    """A client that is behind right after the first write and has caught up when the gateway looks again."""

    def __init__(self) -> None:
        self.body = b""
        self.keep_alive = self.started = True
        self.head_sent = False
        self.dialect, self.request_id = OPENAI, "request"
        self._behind = True

    def begin(self, status: int, fields: bytes, length: int | None) -> None:
        """The head is of no interest."""

    def write(self, payload: bytes, *, last: bool) -> None:
        self.body += payload

    def pass_on(self, payload: bytes) -> bool:
        self.body += payload
        return self.stalled

    @property
    def stalled(self) -> bool:
        behind, self._behind = self._behind, False
        return behind

    async def drained(self, seconds: float) -> None:
        """There is nothing left to wait for."""


async def in_pieces(exchange: Exchange) -> None:
    """An answer that is no stream; its second half comes once the first was taken."""
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
    await asyncio.sleep(0.01)
    await exchange.send(b"cd")


async def events_in_pieces(exchange: Exchange) -> None:
    """A stream; its rest comes once the first event was taken."""
    await exchange.begin_stream()
    for piece in (event("one"), event("two"), DONE):
        await exchange.chunk(piece)
        await asyncio.sleep(0.01)
    await exchange.end_stream()


@pytest.mark.parametrize(
    ("script", "expected"),
    [(events_in_pieces, event("one") + event("two") + DONE), (in_pieces, b"abcd")],
    ids=["events", "plain"],
)
async def test_a_reader_that_catches_up_at_once_gets_the_rest(script: Script, expected: bytes) -> None:
    """The worker is read on, instead of staying paused with no deadline until the client leaves."""
    upstream = Upstream(Timeouts(1.0, 5.0, 5.0, 5.0))
    answer = ReaderWhoCatchesUp()
    accounts = Accounts(Metrics(CollectorRegistry()), time.monotonic)
    body = b'{"stream": true}'
    async with scripted_worker(script) as worker:
        connection = await upstream.attempt(WorkerAddress("127.0.0.1", worker.port), HEAD % len(body), body)
        with accounts.open("1") as bill:
            async with asyncio.timeout(3):
                await relay(connection, cast(ClientAnswer, answer), bill, strip=True, stalled_seconds=1.0)
        upstream.release(connection)
    upstream.close()
    assert answer.body == expected
    assert bill.status == 200
