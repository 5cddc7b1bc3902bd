"""A worker process that fails as it is told: raw sockets, modes that a control port switches, a log of every attempt.

    python -m tests.faults.worker --port P --control-port C --log FILE [--set '{"mode": "rst0"}']

A line of JSON to the control port changes `Behaviour`'s fields; the answer is a line with the worker's state. The log
has a line for the begin and one for the end of each attempt, on the machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import uvloop

from tests.faults import modes
from tests.faults.modes import Behaviour

LINE_LIMIT_BYTES = 2**20
PAGES_HANG_MODE = "hang"
PARENT_SECONDS = 1.0


class AttemptLog:
    """Appends lines that a kill cannot take back: each is one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **fields: Any) -> None:
        os.write(self._file, json.dumps({"t": time.monotonic(), **fields}).encode() + b"\n")


@dataclass
class Work:
    """What the process shares between its connections."""

    behaviour: Behaviour
    log: AttemptLog
    begun: int = 0
    live: int = 0
    gone: int = 0
    garbage_sent: int = 0
    spread: float = 0.0
    seen: set[str] = field(default_factory=set)

    def afflicted(self) -> bool:
        """Whether this request is one of the share that the mode is for: evenly spread, without chance."""
        self.spread += self.behaviour.share
        if self.spread >= 1.0 - 1e-9:
            self.spread -= 1.0
            return True
        return False

    def state(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "begun": self.begun, "live": self.live, "gone": self.gone,
                "garbage_sent": self.garbage_sent, **asdict(self.behaviour)}  # fmt: skip


class Attempt:
    """One request: what was asked, and the connection to answer on."""

    def __init__(self, work: Work, connection: WorkerConnection, head: bytes, body: bytes) -> None:
        self.work = work
        self.connection = connection
        self.head = head
        self.body = body
        self.asked: dict[str, Any] = json.loads(body)
        # A trial of the gateway's own is nobody's request: it is answered alike, and not counted.
        self._ended = modes.header(head, "x-homing-trial") is not None
        self.number = work.begun + 1
        if self._ended:
            return
        work.begun += 1
        work.live += 1
        work.log.write(
            begin=self.number,
            nonce=self.asked.get("nonce"),
            salt=self.asked.get("cache_salt"),
            mode=work.behaviour.mode,
            timeout=modes.header(head, "x-request-timeout"),
        )

    @property
    def transport(self) -> asyncio.Transport:
        return self.connection.transport

    def end(self, why: str) -> None:
        """Close the record, once."""
        if not self._ended:
            self._ended = True
            self.work.live -= 1
            self.work.gone += why == "gone"
            self.work.log.write(end=self.number, nonce=self.asked.get("nonce"), why=why)

    async def send(self, data: bytes) -> None:
        """Write, and wait while the gateway does not read."""
        self.transport.write(data)
        await self.connection.may_write.wait()

    def die(self) -> None:
        """End the process, as an engine that crashes."""
        self.end("died")
        self.work.log.write(died=True)
        os._exit(7)


class WorkerConnection(asyncio.Protocol):
    """Requests of one connection, one after another."""

    transport: asyncio.Transport

    def __init__(self, work: Work) -> None:
        self.work = work
        self.may_write = asyncio.Event()
        self.may_write.set()
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self._attempt: Attempt | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def eof_received(self) -> bool:
        self._gone()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._gone()

    def _gone(self) -> None:
        """The gateway closed its side: whatever runs is cancelled at this moment."""
        if self._attempt is None:
            return
        self._attempt.end("gone")
        if self.work.behaviour.mode == "die_on_abort":
            self._attempt.die()
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> None:
        while self._task is None:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = int(modes.header(head, "content-length") or 0)
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            if head.startswith(b"GET "):
                self._look(head.split(b" ", 2)[1].decode())
            else:
                self._begin(head, rest[:length])

    def _begin(self, head: bytes, body: bytes) -> None:
        self._attempt = Attempt(self.work, self, head, body)
        self._task = asyncio.get_running_loop().create_task(self._serve(self._attempt))

    async def _serve(self, attempt: Attempt) -> None:
        try:
            await modes.answer(attempt)
            attempt.end("done")
        except asyncio.CancelledError:
            attempt.end("gone")
        finally:
            self._task = self._attempt = None
            if not self.transport.is_closing():
                self._next()

    def _look(self, path: str) -> None:
        behaviour = self.work.behaviour
        if behaviour.pages == PAGES_HANG_MODE:
            return
        status = b"200 OK" if behaviour.pages == "ok" else b"503 Service Unavailable"
        self.transport.write(modes.whole(modes.page(path, self.work), status))


async def _control(work: Work, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        for name, value in json.loads(line).items():
            setattr(work.behaviour, name, type(getattr(work.behaviour, name))(value))
        writer.write(json.dumps(work.state()).encode() + b"\n")
    writer.close()


async def serve(options: argparse.Namespace) -> None:
    work = Work(Behaviour(**json.loads(options.set)), AttemptLog(options.log))
    work.log.write(started=os.getpid())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: WorkerConnection(work), "127.0.0.1", options.port, backlog=4096)
    control = await asyncio.start_server(
        lambda reader, writer: _control(work, reader, writer), "127.0.0.1", options.control_port, limit=LINE_LIMIT_BYTES
    )
    parent = os.getppid()
    async with server, control:
        while os.getppid() == parent:  # noqa: ASYNC110 - nobody tells when a test is killed: its workers end by themselves
            await asyncio.sleep(PARENT_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--set", default="{}", help="fields of Behaviour, as JSON")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
