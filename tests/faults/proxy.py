"""A TCP proxy that is a bad network: delays, swallows, resets, throttles and cuts what passes through it."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

PIECE_BYTES = 65536
_COMMAND = re.compile(rb"(?:^|\r\n)\*\d+\r\n(?=\$)")
"""Where a command of Redis' protocol begins."""


@dataclass
class FaultProxy:
    """Forwards to `target`; its fields may be changed at any time and count for the next piece.

    `delay_seconds` is added to each piece in each direction without reordering; `bytes_per_second` throttles each
    connection; `blackhole` takes everything and passes nothing; `cut_after_bytes` ends a connection after so much of
    an answer; `refuse` resets each new connection; `says` is what every command of a Redis client is answered with
    instead of being passed on.
    """

    target: tuple[str, int]
    delay_seconds: float = 0.0
    bytes_per_second: float | None = None
    blackhole: bool = False
    cut_after_bytes: int | None = None
    refuse: bool = False
    says: bytes | None = None
    port: int = 0
    connections: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection, to the end of both directions."""
        self.connections += 1
        if self.refuse:
            _reset(writer)
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.target)
        except OSError:
            _reset(writer)
            return
        pair = {writer, far_writer}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, far_writer, answers=False, back=writer))
                both.create_task(self._pass_on(far_reader, writer, answers=True))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers -= pair
            for end in pair:
                end.close()

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        answers: bool,
        back: asyncio.StreamWriter | None = None,
    ) -> None:
        """One direction. What is delayed waits in a queue, so that a delay does not become a throttle."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.create_task(self._send(queue, writer, answers=answers))
        self._tasks.add(sender)
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(PIECE_BYTES):
                if self.says is not None and back is not None:
                    back.write(self.says * len(_COMMAND.findall(data)))
                elif not self.blackhole:
                    queue.put_nowait((loop.time() + self.delay_seconds, data))
            queue.put_nowait((loop.time() + self.delay_seconds, b""))
            await sender
        finally:
            sender.cancel()
            self._tasks.discard(sender)

    async def _send(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        loop, sent = asyncio.get_running_loop(), 0
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                with suppress(OSError, RuntimeError):
                    writer.write_eof()
                return
            if answers and self.cut_after_bytes is not None and sent + len(data) > self.cut_after_bytes:
                writer.write(data[: self.cut_after_bytes - sent])
                writer.close()
                return
            writer.write(data)
            await writer.drain()
            sent += len(data)
            if self.bytes_per_second is not None:
                await asyncio.sleep(len(data) / self.bytes_per_second)

    def reset_all(self) -> None:
        """Break every open connection hard, as a network that forgot them."""
        for writer in tuple(self._writers):
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def fault_proxy(host: str, port: int) -> AsyncIterator[FaultProxy]:
    """A proxy on a free port of this machine."""
    proxy = FaultProxy((host, port))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, backlog=4096)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.reset_all()
