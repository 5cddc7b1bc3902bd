"""A worker on a raw socket that does exactly what its script says, faults included, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

CACHE_FIELDS = ("cache_partition", "cache_policy", "cache_ttl_seconds")
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 3,
    "total_tokens": 103,
    "prompt_tokens_details": {"cached_tokens": 64},
}
DONE = b"data: [DONE]\n\n"


def event(content: str = "hi", **more: Any) -> bytes:
    """One chat chunk with output in it."""
    body = {"id": "1", "choices": [{"index": 0, "delta": {"content": content}}], **more}
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def usage_event() -> bytes:
    body = {"id": "1", "choices": [], "usage": USAGE}
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def answer_json() -> bytes:
    """The body of an answer that is no stream."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    return json.dumps({"id": "1", "object": "chat.completion", "choices": [choice], "usage": USAGE}).encode()


@dataclass
class Exchange:
    """One request as the worker got it, and the worker's side of the connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: int
    head: bytes
    body: bytes
    began_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    client_gone_at: float | None = None

    @property
    def asked(self) -> dict[str, Any]:
        """The body as JSON."""
        return dict(json.loads(self.body))

    def field(self, name: str) -> str | None:
        """A header of the request."""
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return None

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def send_json(self, body: bytes | None = None, status: str = "200 OK", fields: str = "") -> None:
        body = answer_json() if body is None else body
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{fields}\r\n"
        await self.send(head.encode() + body)

    async def begin_stream(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end_stream(self) -> None:
        await self.send(b"0\r\n\r\n")

    def reset(self) -> None:
        """Break the connection hard."""
        reset(self.writer)

    def close(self) -> None:
        self.writer.close()

    async def client_gone(self) -> None:
        """Until the gateway has closed its side."""
        with suppress(ConnectionError):
            await self.reader.read()
        self.client_gone_at = time.monotonic()


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection hard."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


Script = Callable[[Exchange], Awaitable[None]]


async def plain_json(exchange: Exchange) -> None:
    """An ordinary answer."""
    await exchange.send_json()


async def stream(exchange: Exchange) -> None:
    """An ordinary stream: three tokens, usage when asked, the end."""
    await exchange.begin_stream()
    for content in ("one", "two", "three"):
        await exchange.chunk(event(content))
    if (exchange.asked.get("stream_options") or {}).get("include_usage"):
        await exchange.chunk(usage_event())
    await exchange.chunk(DONE)
    await exchange.end_stream()


async def ordinary(exchange: Exchange) -> None:
    """What is asked for."""
    await (stream if exchange.asked.get("stream") else plain_json)(exchange)


async def reset_at_once(exchange: Exchange) -> None:
    """The request was read; then the connection breaks."""
    exchange.reset()


async def close_at_once(exchange: Exchange) -> None:
    """The request was read; then the connection ends in an orderly way."""
    exchange.close()


async def silent(exchange: Exchange) -> None:
    """Reads and never answers."""
    await exchange.client_gone()


def stream_then(count: int, end: Script) -> Script:
    """`count` tokens, then whatever `end` does."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for number in range(count):
            await exchange.chunk(event(f"t{number}"))
        await end(exchange)

    return script


def raw(data: bytes, *, close: bool = True) -> Script:
    """These very bytes."""

    async def script(exchange: Exchange) -> None:
        await exchange.send(data)
        if close:
            exchange.close()
        else:
            await exchange.client_gone()

    return script


@dataclass
class ScriptedWorker:
    """`script` answers each request that `scripts` (first in, first out) has nothing for."""

    script: Script = ordinary
    scripts: list[Script] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    trials: list[Exchange] = field(default_factory=list)
    connections: int = 0
    keep_alive_seconds: float = 60.0
    port: int = 0
    models: tuple[str, ...] = ("m",)
    cache_fields: tuple[str, ...] = CACHE_FIELDS
    healthy: bool = True
    waiting: int = 0
    listener: asyncio.Server | None = None
    writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def die(self) -> None:
        """As a process that crashes: nobody listens any more, and every connection is reset."""
        assert self.listener is not None
        self.listener.close()
        for writer in tuple(self.writers):
            reset(writer)

    async def live_again(self) -> None:
        """Listen at the same place."""
        self.listener = await asyncio.start_server(
            self.serve, "127.0.0.1", self.port, limit=2**20, backlog=1024, reuse_address=True
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.writers.add(writer)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError):
                while not writer.is_closing():
                    async with asyncio.timeout(self.keep_alive_seconds):
                        head = await reader.readuntil(b"\r\n\r\n")
                    await self._one(reader, writer, number, head)
        finally:
            self._tasks.discard(task)
            self.writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, head: bytes) -> None:
        exchange = Exchange(reader, writer, number, head, b"")
        if head.startswith(b"GET "):
            await self._look(exchange, head.split(b" ", 2)[1].decode())
            return
        exchange.body = await reader.readexactly(int(exchange.field("content-length") or 0))
        (self.trials if exchange.field("x-homing-trial") else self.exchanges).append(exchange)
        script = self.scripts.pop(0) if self.scripts else self.script
        try:
            await script(exchange)
        finally:
            exchange.ended_at = time.monotonic()

    async def _look(self, exchange: Exchange, path: str) -> None:
        """Probes are answered as a healthy worker does, whatever the script, and not recorded."""
        card = {"object": "model", "max_model_len": 4096, "cache_fields": self.cache_fields}
        cards = {
            "object": "list",
            "data": [card | {"id": name} for name in self.models],
        }
        pages = {
            "/health": b"",
            "/v1/models": json.dumps(cards).encode(),
            "/metrics": b"vllm:num_requests_waiting %d\n" % self.waiting,
        }
        if self.healthy:
            await exchange.send_json(pages.get(path, b"{}"))
        else:
            await exchange.send_json(b"{}", status="503 Service Unavailable")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def live(self) -> int:
        """Requests it is at work on."""
        return sum(exchange.ended_at is None for exchange in self.exchanges)

    def stop(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()


@asynccontextmanager
async def scripted_worker(script: Script = ordinary, **more: Any) -> AsyncIterator[ScriptedWorker]:
    """A worker that listens on a free port of this machine."""
    worker = ScriptedWorker(script, **more)
    server = await asyncio.start_server(worker.serve, "127.0.0.1", 0, limit=2**20, backlog=1024)
    worker.port = server.sockets[0].getsockname()[1]
    worker.listener = server
    try:
        yield worker
    finally:
        worker.listener.close()
        worker.stop()


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for a condition; AssertionError when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.002)


def refused_port() -> int:
    """A port of this machine where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
