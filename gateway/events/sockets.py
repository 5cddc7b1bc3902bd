"""ZMQ sockets on the event loop: a subscription, and questions to a replay socket.

Messages are read where they are used, on the loop, so that what is known has one owner and needs no lock; the network
is the business of ZMQ's own thread. pyzmq's asyncio sockets make several futures a message; watching the file
descriptor makes none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from types import ModuleType
from typing import Any

from gateway.events.sources import Source

SEQUENCE_BYTES = 8
END = b"\xff" * SEQUENCE_BYTES
"""The sequence number that ends a replay: −1."""

QUEUE_MESSAGES = 10_000
"""What a socket keeps unread. More is lost, leaves a gap and is asked for again."""

MESSAGE_BYTES = 16 * 2**20
"""A batch is applied at once: one of this size, 190,000 blocks, keeps the loop for most of a second."""
RECONNECT_MILLISECONDS = 100
RECONNECT_MOST_MILLISECONDS = 1_000
HEARTBEAT_MILLISECONDS = 5_000
HEARTBEAT_TIMEOUT_MILLISECONDS = 15_000

log = logging.getLogger("homing.events")

Message = tuple[int, bytes]
"""A batch's number and its payload."""


class ReplayFailed(Exception):
    """A replay has no end: nobody answers, or the answer stopped."""


def load_zmq() -> ModuleType | None:
    """The zmq module, or None, said once in the log, where pyzmq is not installed."""
    try:
        import zmq
    except ModuleNotFoundError:
        log.warning("KV events are not followed: pip install 'homing[events]' brings pyzmq; caches are only believed")
        return None
    return zmq


class Sockets:
    """Makes sockets, all of one ZMQ context with one thread; `close` closes what is left."""

    def __init__(self, zmq: ModuleType) -> None:
        self._zmq = zmq
        self._context = zmq.Context()

    def subscribe(self, source: Source) -> Subscription:
        """Hear what `source` publishes. ZMQ connects, and again after each break, by itself."""
        opened = self._open(self._zmq.SUB, source.topic)
        subscription = Subscription(self._zmq, opened)
        opened.connect(source.endpoint)
        return subscription

    async def replay(self, endpoint: str, first: int, seconds: float) -> AsyncGenerator[Message, None]:
        """What a replay socket repeats from `first` on; `ReplayFailed` when it is silent for `seconds` before the end.

        A DEALER that asks like a REQ, which would hear only the first answer. Both framings are understood: the topic
        stands before the number from vLLM 0.26 on.
        """
        opened = self._open(self._zmq.DEALER, None)
        asker = Inbox(self._zmq, opened)
        try:
            opened.connect(endpoint)
            asker.send([b"", first.to_bytes(SEQUENCE_BYTES, "big")])
            while True:
                try:
                    frames = await asker.receive(seconds)
                except TimeoutError:
                    raise ReplayFailed(f"{endpoint} gave no whole answer within {seconds:g} s") from None
                if len(frames) < 3 or len(frames[-2]) != SEQUENCE_BYTES:
                    raise ReplayFailed(f"{endpoint} answers with something else than batches")
                if frames[-2] == END:
                    return
                yield int.from_bytes(frames[-2], "big"), frames[-1]
        finally:
            asker.close()

    def close(self) -> None:
        """Close every socket."""
        self._context.destroy(linger=0)

    def _open(self, kind: int, topic: str | None) -> Any:
        zmq = self._zmq
        opened = self._context.socket(kind)
        options = {
            zmq.LINGER: 0,
            zmq.RCVHWM: QUEUE_MESSAGES,
            zmq.MAXMSGSIZE: MESSAGE_BYTES,
            zmq.RECONNECT_IVL: RECONNECT_MILLISECONDS,
            zmq.RECONNECT_IVL_MAX: RECONNECT_MOST_MILLISECONDS,
            zmq.HEARTBEAT_IVL: HEARTBEAT_MILLISECONDS,
            zmq.HEARTBEAT_TIMEOUT: HEARTBEAT_TIMEOUT_MILLISECONDS,
            zmq.IPV6: 1,
        }
        for option, value in options.items():
            opened.setsockopt(option, value)
        if topic is not None:
            opened.setsockopt(zmq.SUBSCRIBE, topic.encode())
        return opened


class Inbox:
    """A ZMQ socket whose messages can be awaited; one task at a time."""

    def __init__(self, zmq: ModuleType, socket: Any) -> None:
        self._zmq = zmq
        self._socket = socket
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._descriptor: int = socket.getsockopt(zmq.FD)

    def send(self, frames: Sequence[bytes]) -> None:
        """Hand a message to ZMQ."""
        self._socket.send_multipart(frames)

    async def receive(self, seconds: float) -> list[bytes]:
        """The next message's frames; TimeoutError after `seconds`. Does not suspend while there are some."""
        deadline = self._loop.time() + seconds
        while (frames := self._next()) is None:
            # The descriptor tells only of changes: it was looked at just now, so the next change sets the event.
            self._woken.clear()
            # Watched only while somebody waits: it stays readable until then, and the loop would spin.
            self._loop.add_reader(self._descriptor, self._woken.set)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._woken.wait()
            finally:
                self._loop.remove_reader(self._descriptor)
        return frames

    def close(self) -> None:
        """Forget what is unread."""
        self._socket.close(linger=0)

    def _next(self) -> list[bytes] | None:
        try:
            return list(self._socket.recv_multipart(self._zmq.NOBLOCK))
        except self._zmq.Again:
            return None


class Subscription(Inbox):
    """A SUB socket; messages that are no numbered batch are passed over."""

    def __init__(self, zmq: ModuleType, socket: Any) -> None:
        super().__init__(zmq, socket)
        self._monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)

    def broke(self) -> bool:
        """Whether the connection ended since this was asked last: what comes after may be another process's."""
        broke = False
        while True:
            try:
                self._monitor.recv_multipart(self._zmq.NOBLOCK)
            except self._zmq.Again:
                return broke
            broke = True

    def close(self) -> None:
        """Forget what is unread."""
        if not self._socket.closed:
            self._socket.disable_monitor()
            self._monitor.close(linger=0)
        super().close()

    async def batch(self, seconds: float) -> Message:
        """The next batch; TimeoutError when none comes within `seconds`."""
        while True:
            frames = await self.receive(seconds)
            if len(frames) == 3 and len(frames[1]) == SEQUENCE_BYTES:
                return int.from_bytes(frames[1], "big"), frames[2]
