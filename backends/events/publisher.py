"""Events on their way out: a ZMQ PUB socket, and a ROUTER that repeats what was missed, in a thread of their own."""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from backends.events.config import EventsConfig
from backends.events.wire import (
    SEQUENCE_BYTES,
    Encoding,
    Event,
    encode_batch,
    published_frames,
    replay_frames,
)

logger = logging.getLogger("homing.worker")

LINGER_MILLISECONDS = 500
"""How long the end of the process waits for the last batches to leave."""


class EventsError(Exception):
    """Events cannot be published as asked; the message says what to change."""


class Numbered(NamedTuple):
    """A step's events, with the number that a subscriber counts by."""

    sequence: int
    timestamp: float
    events: Sequence[Event]


class EventPublisher:
    """Publishes batches numbered from 0. `publish` is for one thread, and never waits.

    A batch that finds `max_queue_size` others waiting is dropped: its number is missing, so subscribers notice.
    """

    def __init__(self, config: EventsConfig, *, encoding: Encoding = Encoding.MAP, replay_topic: bool = True) -> None:
        self.config = config
        self.dropped = 0
        self._encoding = encoding
        self._replay_topic = replay_topic
        self._topic = config.topic.encode()
        self._next = 0
        self._waiting: queue.SimpleQueue[Numbered | None] = queue.SimpleQueue()
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._bell, self._ear = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="kv-events", daemon=True)

    def start(self) -> None:
        """Open the sockets and start the thread; EventsError when pyzmq is missing or an endpoint cannot be had."""
        try:
            import zmq
        except ModuleNotFoundError:
            raise EventsError("--kv-events-config needs pyzmq: pip install 'homing[events]'") from None
        self._zmq = zmq
        self._context = zmq.Context()
        self._pub = self._open(zmq.PUB, self.config.endpoint, self.config.hwm, bind=binds(self.config.endpoint))
        self.config = replace(self.config, endpoint=self._resolved(self._pub, self.config.endpoint))
        self._router = None
        if self.config.replay_endpoint is not None:
            # Room for a whole replay: a ROUTER drops what does not fit.
            room = 2 * self.config.buffer_steps
            self._router = self._open(zmq.ROUTER, self.config.replay_endpoint, room, bind=True)
            resolved = self._resolved(self._router, self.config.replay_endpoint)
            self.config = replace(self.config, replay_endpoint=resolved)
        self._bell.setblocking(False)
        self._thread.start()

    def publish(self, events: Sequence[Event]) -> None:
        """Hand a step's events over."""
        numbered = Numbered(self._next, time.time(), events)
        self._next += 1
        if self._waiting.qsize() >= self.config.max_queue_size:
            self.dropped += 1
            if self.dropped == 1:
                logger.warning("KV events are dropped: %d batches wait to be sent", self.config.max_queue_size)
            return
        self._put(numbered)

    def stop(self) -> None:
        """Send what waits, close the sockets, end the thread."""
        if self._thread.is_alive():
            self._put(None)
            self._thread.join()
        self._bell.close()
        self._ear.close()

    def _put(self, numbered: Numbered | None) -> None:
        self._waiting.put(numbered)
        with suppress(BlockingIOError):  # full of rings: nobody sleeps
            self._bell.send(b"!")

    def _open(self, kind: int, endpoint: str, high_water_mark: int, *, bind: bool) -> Any:
        opened = self._context.socket(kind)
        opened.setsockopt(self._zmq.LINGER, LINGER_MILLISECONDS)
        opened.set_hwm(high_water_mark)
        if "::" in endpoint or "[" in endpoint:
            opened.setsockopt(self._zmq.IPV6, 1)
        try:
            (opened.bind if bind else opened.connect)(endpoint)
        except self._zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise EventsError(
                f"--kv-events-config: cannot {'bind' if bind else 'connect to'} {endpoint}: {error.strerror}; "
                "is another worker there?"
            ) from error
        return opened

    def _resolved(self, opened: Any, endpoint: str) -> str:
        """The endpoint with the port that a port of `*` or 0 turned into."""
        if not endpoint.startswith("tcp://") or not endpoint.endswith((":*", ":0")):
            return endpoint
        port = opened.getsockopt_string(self._zmq.LAST_ENDPOINT).rsplit(":", 1)[1]
        return f"{endpoint.rsplit(':', 1)[0]}:{port}"

    # The thread from here on.

    def _run(self) -> None:
        poller = self._zmq.Poller()
        poller.register(self._ear, self._zmq.POLLIN)
        if self._router is not None:
            poller.register(self._router, self._zmq.POLLIN)
        open_ = True
        while open_:
            ready = dict(poller.poll())
            if self._ear.fileno() in ready:
                self._ear.recv(4096)
            open_ = self._send_waiting()
            if self._router in ready:
                self._answer(self._router)
        self._context.destroy()

    def _send_waiting(self) -> bool:
        """Publish and keep all that waits; False when there will be no more."""
        with suppress(queue.Empty):
            while (numbered := self._waiting.get_nowait()) is not None:
                payload = encode_batch(numbered.timestamp, numbered.events, self._encoding)
                self._kept.append((numbered.sequence, payload))
                self._pub.send_multipart(published_frames(self._topic, numbered.sequence, payload))
            return False
        return True

    def _answer(self, router: Any) -> None:
        """Repeat what is kept from the wanted number on; whoever asks in another form gets no answer."""
        with suppress(self._zmq.Again):
            while True:
                caller, *request = router.recv_multipart(self._zmq.NOBLOCK)
                if len(request) != 2 or request[0] or len(request[1]) != SEQUENCE_BYTES:
                    logger.warning("A replay request was not [empty, 8 bytes of sequence number]")
                    continue
                first = int.from_bytes(request[1], "big")
                for sequence, payload in self._kept:
                    if sequence >= first:
                        self._send(router, caller, sequence, payload)
                self._send(router, caller, None, b"")

    def _send(self, router: Any, caller: bytes, sequence: int | None, payload: bytes) -> None:
        frames = replay_frames(self._topic, sequence, payload, with_topic=self._replay_topic)
        router.send_multipart([caller, *frames])


def binds(endpoint: str) -> bool:
    """vLLM's rule: wildcards and local endpoints are bound, all others connected to."""
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))
