"""What the bench of connections is made of: a worker that answers, floods or is silent, and clients that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

MODEL, KEY = "m", "sk-bench-0123456789abcdef"
CHOICE = {"index": 0, "message": {"role": "assistant", "content": "hello"}}
ANSWER = json.dumps({"id": "1", "choices": [CHOICE]}).encode()
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 16_000 + b'"}}]}\n\n'
CARDS = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 65536}]}).encode()
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LENGTH = re.compile(rb"content-length: (\d+)")
SMALL_BUFFER_BYTES = 4096


def answer(body: bytes) -> bytes:
    """A whole answer."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def request(text: str, *, stream: bool = False, more: str = "") -> bytes:
    """A chat request; its text tells the worker what to do: flood, silent, or anything else."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": stream}).encode()
    return head(f"content-length: {len(body)}\r\n{more}") + body


def head(lines: str, target: str = "/v1/chat/completions", method: str = "POST") -> bytes:
    """A head with a good key and these lines, each ended by CRLF."""
    return f"{method} {target} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {KEY}\r\n{lines}\r\n".encode()


@dataclass
class Worker:
    """Serves in this process. `left_at`: when silent requests' connections ended; `sent`: events of floods."""

    port: int = 0
    silent: int = 0
    sent: int = 0
    left_at: list[float] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the gateway."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                asked = await reader.readuntil(b"\r\n\r\n")
                length = LENGTH.search(asked)
                body = await reader.readexactly(int(length[1])) if length else b""
                await self._answer(reader, writer, asked, body)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: bytes, body: bytes
    ) -> None:
        if asked.startswith(b"GET "):
            writer.write(answer(CARDS if b"/v1/models" in asked else b""))
        elif b'"silent' in body:
            self.silent += 1
            with contextlib.suppress(ConnectionError):
                await reader.read()
            self.left_at.append(time.monotonic())
            raise ConnectionError
        elif b'"flood' in body:
            writer.write(STREAM)
            for _ in range(4000):
                writer.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
                await writer.drain()
                self.sent += 1
        else:
            writer.write(answer(ANSWER))


@asynccontextmanager
async def worker() -> AsyncIterator[Worker]:
    """A worker on a free port."""
    here = Worker()
    server = await asyncio.start_server(here.serve, "127.0.0.1", 0, backlog=1024)
    here.port = server.sockets[0].getsockname()[1]
    async with server:
        yield here
        server.close()


class Client:
    """One connection that is used as it should be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Client:
        """To the gateway."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, wire: bytes) -> int:
        """Send, and read the whole answer; its status."""
        self.writer.write(wire)
        got = await self.reader.readuntil(b"\r\n\r\n")
        length = LENGTH.search(got.lower())
        await self.reader.readexactly(int(length[1]) if length else 0)
        return int(got[9:12])

    def close(self) -> None:
        """Leave."""
        self.writer.close()


async def good_traffic(port: int, seconds: float, clients: int = 4) -> tuple[list[float], int]:
    """So many clients asking one request after another; seconds each took, and how many went wrong."""
    took: list[float] = []
    errors = 0
    until = time.monotonic() + seconds

    async def one(number: int) -> None:
        nonlocal errors
        client = await Client.connect(port)
        while (began := time.monotonic()) < until:
            try:
                errors += await client.ask(request(f"good {number}")) != 200
            except (OSError, asyncio.IncompleteReadError):
                errors += 1
                client = await Client.connect(port)
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.002)
        client.close()

    await asyncio.gather(*map(one, range(clients)))
    return took, errors


def deaf_socket(port: int) -> socket.socket:
    """A connection that takes in hardly anything."""
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
    deaf.connect(("127.0.0.1", port))
    return deaf


def slowloris(port: int, count: int) -> None:
    """Until it is ended: so many at a time, each saying a piece a second, evenly spread; prints `ready` once all are
    there. A third each sends a head line by line, a body byte by byte, and a head byte by byte."""
    kinds = (
        (head("").removesuffix(b"\r\n"), b"x-y: z\r\n"),
        (head("content-length: 100000\r\n"), b"x"),
        (b"POST /", b"x"),
    )
    slow: list[socket.socket | None] = [None] * count
    for turn in itertools.count():
        number = turn % count
        if turn == count:
            print("ready", flush=True)
        if turn >= count:
            time.sleep(max(0.0, 0.9 / count))
        first, piece = kinds[number % 3]
        slow[number] = said(slow[number], port, first, piece)


def said(one: socket.socket | None, port: int, first: bytes, piece: bytes) -> socket.socket | None:
    """Say one piece more, or begin anew where the gateway has closed."""
    try:
        if one is None:
            one = socket.create_connection(("127.0.0.1", port))
            one.setblocking(False)
            one.sendall(first)
        elif gone(one):
            one.close()
            return None
        else:
            one.sendall(piece)
    except OSError:
        return None
    return one


def gone(one: socket.socket) -> bool:
    """Whether the gateway has closed, with or without a word."""
    try:
        return one.recv(4096) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    slowloris(int(sys.argv[1]), int(sys.argv[2]))
