"""One connection to a worker and one exchange on it at a time: bytes out, a strict head and the payload back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from enum import Enum
from typing import Final, cast

from gateway.addresses import WorkerAddress
from gateway.body_framing import Framing, MalformedBody
from gateway.response_head import HEAD_LIMIT_BYTES, MalformedAnswer, ResponseHead, framing_of, parse_head

Sink = Callable[[bytes], None]
"""Takes the payload as it comes; `Connection.complete` tells whether it is the last, which may be empty."""

MOST_INTERIM_HEADS: Final = 32
_PENDING_LIMIT_BYTES: Final = 256 * 1024
_SINK_FAILED: Final = "what takes its answer failed"
_SWITCHING_PROTOCOLS: Final = 101
_FIRST_FINAL_STATUS: Final = 200


class Cause(Enum):
    """Why an exchange failed."""

    REFUSED = "refused"
    BROKE = "broke"
    SILENT = "silent"
    MALFORMED = "malformed"
    SHUTDOWN = "shutdown"
    """The gateway's own end, not the worker's fault."""
    CLIENT = "client"
    """The caller's fault, not the worker's."""
    FILES = "files"
    """The gateway has no descriptor left, which is not the worker's fault either."""


class UpstreamFault(Exception):
    """An exchange that failed. `answered`: some byte of an answer had arrived before."""

    def __init__(self, cause: Cause, message: str, *, answered: bool) -> None:
        super().__init__(message)
        self.cause = cause
        self.answered = answered


class Connection(asyncio.Protocol):
    """A connection's whole life. Whoever sends on it awaits `answer`, attaches a sink, and awaits `wait` until
    `complete` or `fault` is set; then it goes back to the pool or is dropped.
    """

    __slots__ = (
        "_head_bytes", "_idle_seconds", "_interim_heads", "_loop", "_on_lost", "_paused", "_pending",
        "_pending_bytes", "_sink", "_transport", "_waiter", "answered", "busy", "closed", "complete", "deadline",
        "fault", "framing", "head", "last_byte_at", "sent_at", "streams", "target",
    )  # fmt: skip

    def __init__(self, target: WorkerAddress, on_lost: Callable[[Connection], None]) -> None:
        self.target = target
        self.closed = False
        self.busy = False
        self.last_byte_at = self.sent_at = 0.0
        self.streams = True
        """Whether a first byte is expected before the answer is complete."""
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._idle_seconds = 0.0
        self._reset()

    def _reset(self) -> None:
        self.answered = False
        self.complete = False
        self.fault: UpstreamFault | None = None
        self.head: ResponseHead | None = None
        self.framing: Framing | None = None
        self.deadline = math.inf
        self._head_bytes = b""
        self._interim_heads = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._sink: Sink | None = None
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None

    # The exchange, as its owner sees it

    def send(self, head: bytes, body: bytes, *, first_byte_seconds: float, idle_seconds: float) -> None:
        """Begin an exchange. Until a payload byte comes, `first_byte_seconds` count; after it, the idle time."""
        self._reset()
        self.busy = True
        self._idle_seconds = idle_seconds
        self.last_byte_at = self.sent_at = self._loop.time()
        self.deadline = self.sent_at + first_byte_seconds
        if self._transport is None or self.ended:
            self.fail(Cause.BROKE, "the connection was closed")
        else:
            self._transport.writelines((head, body))

    async def answer(self) -> None:
        """Until the head and the first payload byte, or the end of the body, are here; raises `UpstreamFault`."""
        while self.fault is None and not self._pending and not self.complete:
            await self.wait()
        if (fault := self.fault) is not None and not self._pending:
            # Not the kept one: its traceback would hold this connection, and wait for the collector of cycles.
            raise UpstreamFault(fault.cause, str(fault), answered=fault.answered)

    @property
    def answered_head(self) -> ResponseHead:
        """The head, after `answer`."""
        if self.head is None:
            raise RuntimeError("no answer yet")
        return self.head

    def attach(self, sink: Sink) -> None:
        """Hand everything that came so far to `sink`, and what comes from now on as it comes."""
        if self._paused:
            self.resume()
        self._sink = sink
        pending, self._pending = self._pending, []
        if pending or self.complete:
            sink(b"".join(pending))

    def run_on(self, over: Callable[[], None]) -> None:
        """Nobody reads the answer any more: what comes is dropped, and `over` called when it has come to its end."""
        self.fault = None
        self.attach(lambda _payload: over() if self.complete else None)

    async def wait(self) -> None:
        """Until something happens that the owner must look at: the end, a fault, or a call of `wake`."""
        self._waiter = self._loop.create_future()
        await self._waiter

    def wake(self) -> None:
        """Let the owner look."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pause(self) -> None:
        """Read no more from the worker until `resume`; no timeout counts meanwhile."""
        self._paused = True
        self.deadline = math.inf
        if self._transport is not None and not self.closed:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        self._paused = False
        self.deadline = self._loop.time() + self._idle_seconds
        if self._transport is not None and not self.closed:
            self._transport.resume_reading()

    @property
    def paused(self) -> bool:
        """Whether the worker is not read from at the moment."""
        return self._paused

    @property
    def reusable(self) -> bool:
        """Whether another exchange may follow: this one ended cleanly, and nothing is left on the way."""
        return (
            self.complete
            and self.fault is None
            and not self.closed
            and self.head is not None
            and self.head.keep_alive
            and self.framing is not None
            and not self.framing.excess
            and self._transport is not None
            and self._transport.get_write_buffer_size() == 0
        )

    @property
    def ended(self) -> bool:
        """Whether it is closed, or the worker has closed it and the loop has yet to say so."""
        return self.closed or self._transport is None or self._transport.is_closing()

    def rest(self) -> None:
        """End the exchange and keep the connection for another."""
        self._reset()
        self.busy = False

    def abort(self) -> None:
        """Close at once: the worker learns of it with its next packet."""
        self.busy = False
        self._sink = None
        if self._transport is not None and not self.closed:
            self.closed = True
            self._transport.abort()

    def expire(self, now: float) -> None:
        """Fail the exchange when its deadline has passed."""
        if now >= self.deadline and self.fault is None and not self.complete:
            self.fail(Cause.SILENT, "no byte came in time")
            self.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse and pass on; anything out of place fails the exchange and closes the connection."""
        if not self.busy or self.complete or self.fault is not None:
            # Bytes that belong to no exchange: nothing on this connection can be trusted any more.
            self.abort()
            return
        self.answered = True
        self.last_byte_at = self._loop.time()
        try:
            if self._sink is None or self.framing is None:
                self._take(data)
                return
            payload = self.framing.feed(data)
            if self.framing.complete:
                self.complete = True
                self._deliver(payload)
                self.wake()
            elif payload:
                self.deadline = self.last_byte_at + self._idle_seconds
                try:
                    self._sink(payload)
                except Exception:
                    self.fail(Cause.CLIENT, _SINK_FAILED)
                    raise
        except (MalformedAnswer, MalformedBody) as error:
            self.fail(Cause.MALFORMED, str(error))
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The end of the connection ends an exchange: well only if the body ends by it."""
        self.closed = True
        self._on_lost(self)
        if not self.busy or self.complete or self.fault is not None:
            return
        if error is None and self.framing is not None and self.framing.closed():
            self.complete = True
            self._deliver(b"")
            self.wake()
        else:
            self.fail(Cause.BROKE, "the connection ended before the answer did")

    def _deliver(self, payload: bytes) -> None:
        """To the sink, if there is one. Its own fault ends the exchange, or its owner would wait for ever."""
        try:
            if self._sink is not None:
                self._sink(payload)
        except Exception:
            self.fail(Cause.CLIENT, _SINK_FAILED)
            raise

    def _take(self, data: bytes) -> None:
        if self.framing is None:
            data = self._take_head(self._head_bytes + data)
        if self.framing is None:
            return
        payload = self.framing.feed(data) if data else b""
        self.complete = self.framing.complete
        if payload or self.complete:
            self.deadline = self.last_byte_at + self._idle_seconds
            self._keep(payload)

    def _take_head(self, data: bytes) -> bytes:
        """Read the head if it is all here; returns what follows it. Interim answers (1xx) are read and forgotten."""
        while self._interim_heads <= MOST_INTERIM_HEADS:
            end = data.find(b"\r\n\r\n", 0, HEAD_LIMIT_BYTES)
            if end < 0:
                if len(data) >= HEAD_LIMIT_BYTES:
                    raise MalformedAnswer(f"its head is longer than {HEAD_LIMIT_BYTES} bytes")
                self._head_bytes = data
                return b""
            head = parse_head(data[:end])
            data = data[end + 4 :]
            if head.status >= _FIRST_FINAL_STATUS:
                self.head, self.framing, self._head_bytes = head, framing_of(head), b""
                return data
            if head.status == _SWITCHING_PROTOCOLS:
                raise MalformedAnswer("it wants to switch protocols")
            self._interim_heads += 1
        raise MalformedAnswer("it does not come to its answer")

    def _keep(self, payload: bytes) -> None:
        if self._sink is not None:
            self._sink(payload)
        elif payload:
            self._pending.append(payload)
            self._pending_bytes += len(payload)
            if self._pending_bytes > _PENDING_LIMIT_BYTES and not self.complete:
                self.pause()
        self.wake()

    def fail(self, cause: Cause, message: str) -> None:
        """End the exchange as failed, if it has not ended yet."""
        if self.fault is None:
            self.complete = False
            self.fault = UpstreamFault(cause, message, answered=self.answered)
            self.wake()
