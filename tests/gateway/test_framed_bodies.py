"""What is around a body costs no more than the body may: extensions of chunks, empty lines, a go-ahead for nothing."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.gateway.running_gateway import MESSAGES, Client, Running, build_request
from tests.gateway.scripted_worker import answer_json, reset, silent, until
from tests.gateway.test_proxy import one_worker

BODY = json.dumps({"model": "m", "messages": MESSAGES}).encode()
CHUNKED = {"transfer-encoding": "chunked"}
READ_AT_MOST = 2 * 2**20
"""What may be on the wire of a body that is framing only, what sockets hold included, and more than is measured."""


class Flood:
    """Sends one piece again and again until the gateway takes no more of it."""

    def __init__(self, client: Client, piece: bytes) -> None:
        self.sent_bytes = 0
        self._client = client
        self._piece = piece

    async def __call__(self) -> None:
        try:
            while self.sent_bytes < 2**30:
                self._client.writer.write(self._piece)
                await self._client.writer.drain()
                self.sent_bytes += len(self._piece)
        except (ConnectionError, asyncio.CancelledError):
            pass


def read_bytes(running: Running) -> int:
    """Of the bodies on the wire, as the gateway's connections count them."""
    return max((handler._body_bytes for handler in running.gateway.server._http.connections), default=0)


@pytest.mark.parametrize("piece", [b"y" * 65536, (b"1;" + b"y" * 8000 + b"\r\nx\r\n") * 8])
async def test_extensions_of_chunks_end_somewhere(piece: bytes) -> None:
    """Row E7: nobody reads them, so that a gigabyte of them would be no byte of a body and pass every limit."""
    async with one_worker() as (running, worker):
        client = await running.connect()
        start = b"5;a=" if piece.startswith(b"y") else b""
        await client.send(build_request(body=start, headers=CHUNKED))
        flood = Flood(client, piece)
        sending = asyncio.create_task(flood())
        answer = await asyncio.wait_for(client.answer(), 10)
        assert (answer.status, answer.fields["connection"]) == (400, "close")
        await until(lambda: running.gateway.server.connections.open == 0)
        sending.cancel()
        assert flood.sent_bytes < 2**25
        assert worker.exchanges == []
        client.abort()


async def test_they_end_for_a_request_behind_another_too() -> None:
    """It waits for the answer before it, and nothing of it is read meanwhile but a little."""
    async with one_worker(silent) as (running, worker):
        client = await running.connect()
        await client.send(build_request() + build_request(body=b"5;a=", headers=CHUNKED))
        await until(lambda: len(worker.exchanges) == 1)
        flood = Flood(client, b"y" * 65536)
        sending = asyncio.create_task(flood())
        await until(lambda: read_bytes(running) > 2**19)
        before = -1
        while before != flood.sent_bytes:
            before = flood.sent_bytes
            await asyncio.sleep(0.1)
        assert read_bytes(running) < READ_AT_MOST
        sending.cancel()
        reset(client.writer)  # an end in order would have to wait behind what is not read
        await until(running.settled)


async def test_chunks_of_one_byte_are_a_body() -> None:
    """Whoever streams tokens into a request sends such; no more framing than that is needed for anything."""
    text = json.dumps({"model": "m", "prompt": "x" * 300_000}).encode()
    wire = b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n"
    async with one_worker() as (running, worker):
        client = await running.connect()
        await client.send(build_request("/v1/completions", body=wire, headers=CHUNKED, key="shared-key"))
        assert (await asyncio.wait_for(client.answer(), 20)).status == 200
        assert worker.exchanges[0].body == text
        client.close()


async def test_an_empty_line_behind_a_body_is_no_head() -> None:
    """Old clients send one (RFC 9112, section 2.2): a 408 for it would be taken for the next answer."""
    async with one_worker(client_timeouts={"header_seconds": 0.2, "keep_alive_seconds": 30.0}) as (running, worker):
        client = await running.connect()
        for _ in range(2):
            await client.send(build_request())
            assert (await client.answer()).status == 200
            await until(lambda: running.gateway.server.connections.idle == 1)
            await client.send(b"\r\n")
            await asyncio.sleep(0.4)
        assert len(worker.exchanges) == 2
        await client.send(b"\r\nPOST")
        assert (await asyncio.wait_for(client.answer(), 5)).status == 408


async def test_no_go_ahead_for_a_body_that_is_here() -> None:
    """RFC 9110, section 10.1.1: the client did not wait."""
    async with one_worker() as (running, _):
        client = await running.connect()
        await client.send(build_request(headers={"expect": "100-continue"}))
        assert (await client.head())[0] == 200
        client.close()


async def test_a_worker_is_asked_for_an_answer_as_it_is() -> None:
    """Where nothing is said any coding will do, and of a packed answer nobody could read the usage."""
    async with one_worker() as (running, worker):
        assert (await running.ask()).body == answer_json()
        assert worker.exchanges[0].field("accept-encoding") == "identity"
