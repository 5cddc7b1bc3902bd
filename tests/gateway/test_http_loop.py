"""A connection's loop: one task for all its requests, and no fault of a handler leaves a client waiting."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager

from aiohttp.web import Response
from prometheus_client import CollectorRegistry

from gateway.connections import Bounds
from gateway.http_server import HttpServer
from gateway.metrics import Metrics
from tests.gateway.scripted_worker import until

ASK = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"


@asynccontextmanager
async def serving(handler):
    """A server with this handler and a client connected to it."""
    server = HttpServer(handler, Bounds(100, 1000, 10.0, 10.0), 10.0, Metrics(CollectorRegistry()))
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.sockets[0].getsockname()[1])
    try:
        yield reader, writer
    finally:
        writer.close()
        listener.close()
        await server.shutdown(1.0)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next answer's status and body; reads no further."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def test_all_requests_of_a_connection_run_in_its_task():
    """None is made for a request, and what a handler sees as current is the connection's."""
    tasks = []

    async def handler(request):
        tasks.append((asyncio.current_task(), len(asyncio.all_tasks())))
        return Response(body=await request.read())

    async with serving(handler) as (reader, writer):
        before = len(asyncio.all_tasks())
        writer.write(ASK * 3)
        assert [await answer(reader) for _ in range(3)] == [(200, b"hi")] * 3
    assert len({task for task, _ in tasks}) == 1
    assert {count for _, count in tasks} == {before + 1} or {count for _, count in tasks} == {before}


async def test_a_handler_that_fails_is_a_500_and_the_end_of_the_connection():
    """In words that tell nothing of the request; those behind it are not served."""

    async def handler(request):
        raise ValueError("sk-secret")

    async with serving(handler) as (reader, writer):
        writer.write(ASK * 2)
        status, body = await answer(reader)
        assert status == 500
        assert b"secret" not in body
        assert await reader.read() == b""


async def test_a_client_that_leaves_cancels_its_handler():
    """Wherever it waits."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(request):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(handler) as (_, writer):
        writer.write(ASK)
        await begun.wait()
        writer.transport.abort()
        async with asyncio.timeout(5):
            await ended.wait()


async def test_a_client_that_leaves_leaves_nothing_to_collect():
    """All that its request held goes with it, without a search for cycles: those are rare here."""
    begun, held = asyncio.Event(), []

    class Held:
        pass

    async def handler(request):
        mine = Held()
        held.append(weakref.ref(mine))
        begun.set()
        await asyncio.Event().wait()

    async with serving(handler) as (_, writer):
        gc.collect()
        gc.disable()
        try:
            writer.write(ASK)
            await begun.wait()
            writer.transport.abort()
            await until(lambda: held[0]() is None)
        finally:
            gc.enable()


async def test_what_is_no_http_is_a_400_and_the_end():
    """aiohttp's parser says so; the loop goes its own way for it."""

    async def handler(request):
        return Response()

    async with serving(handler) as (reader, writer):
        writer.write(b"nonsense\r\n\r\n")
        assert (await answer(reader))[0] == 400
        assert await reader.read() == b""
