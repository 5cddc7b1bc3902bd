"""The load: sends planned requests through routers on real sockets, streaming, and notes what came back and when.

Open loop: each request goes out at its time, whatever became of the others. Closed loop: those of a session wait for
the answer before. Several targets are taken in turn, as a balancer in front of replicas would: one that refuses a
connection, or breaks before a byte of the answer came, is followed by the next; an answer that has begun is broken.
"""

# ruff: noqa: ARG002 - asyncio calls with what it has

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httptools

from bench.live.texts import Planned

ANSWER_SECONDS = 300.0
SETTLE_SECONDS = 0.3
"""Between starting to drive and the first request."""

USAGE_MARK = b'"usage":'


class Answer(NamedTuple):
    """One request's fate; times in trace seconds.

    `sent_at` counts from the first planned moment; `lateness` is by how much the driver missed its own time.
    `target` is who answered; `resent` counts the targets that refused or broke off before it, `broken` those of them
    that had taken the request up. `error` says why there is no whole answer; None where there is one.
    """

    number: int
    sent_at: float
    lateness: float
    ttft: float
    total: float
    prompt_tokens: int
    cached_tokens: int
    target: int
    resent: int
    broken: int
    error: str | None


class Fault(NamedTuple):
    """A connection that did not bring a whole answer; `began` says that a part of it came."""

    error: str
    refused: bool = False
    began: bool = False


@dataclass(frozen=True)
class Load:
    """What is sent where. `speed_up` is how many trace seconds pass in a real one; `headers` are whole lines."""

    planned: Sequence[Planned]
    ports: Sequence[int]
    speed_up: float
    closed_loop: bool = False
    headers: Sequence[str] = ()


@dataclass
class _Received:
    """One answer so far."""

    done: asyncio.Future[Fault | None]
    status: int = 0
    first_at: float | None = None
    body: bytearray = field(default_factory=bytearray)


class _Client(asyncio.Protocol):
    """One connection to a router, used for one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._received: _Received | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._end(Fault("the connection broke"))

    def ask(self, head: bytes, body: bytes) -> _Received:
        """Send a request; the answer's `done` is set when it is over."""
        self._parser = httptools.HttpResponseParser(self)
        received = self._received = _Received(asyncio.get_running_loop().create_future())
        if self.transport is None:
            self._end(Fault("the connection broke"))
        else:
            self.transport.writelines((head, body))
        return received

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._end(Fault("no HTTP"))

    def on_body(self, data: bytes) -> None:
        if self._received is not None:
            self._received.first_at = self._received.first_at or time.perf_counter()
            self._received.body += data

    def on_message_complete(self) -> None:
        if self._received is not None:
            self._received.status = self._parser.get_status_code()
        self._end(None)

    def _end(self, fault: Fault | None) -> None:
        received, self._received = self._received, None
        if received is not None and not received.done.done():
            received.done.set_result(fault._replace(began=bool(received.body)) if fault else None)


class Driver:
    """Sends one load, from SETTLE_SECONDS after it was made; other tasks may wait for a trace time with `until`."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.answers: list[Answer] = []
        self._idle: dict[int, list[_Client]] = defaultdict(list)
        self._turn = 0
        self._last_at = float("inf")
        self._began = time.perf_counter() + SETTLE_SECONDS
        self._head = "".join(f"{line}\r\n" for line in ("host: bench", "content-type: application/json", *load.headers))

    @property
    def now(self) -> float:
        """Trace seconds since the first planned moment; negative before it."""
        return (time.perf_counter() - self._began) * self.load.speed_up

    async def until(self, at_seconds: float) -> None:
        """Wait for a moment of the trace; at once if it has passed."""
        await asyncio.sleep(max(0.0, (at_seconds - self.now) / self.load.speed_up))

    def stop_sending(self, at_seconds: float) -> None:
        """Send nothing that is planned for later than this moment of the trace."""
        self._last_at = at_seconds

    async def run(self) -> list[Answer]:
        """Send everything and wait for the last answer; answers in the order in which they ended."""
        async with asyncio.TaskGroup() as under_way:
            if self.load.closed_loop:
                for session in _sessions(self.load.planned):
                    under_way.create_task(self._session(session))
            else:
                await self._all_in_time(under_way)
        for client in (client for idle in self._idle.values() for client in idle):
            if client.transport is not None:
                client.transport.close()
        return self.answers

    async def _all_in_time(self, under_way: asyncio.TaskGroup) -> None:
        for planned in self.load.planned:
            if planned.at_seconds > self._last_at:
                break
            if planned.at_seconds > self.now:
                await self.until(planned.at_seconds)
            under_way.create_task(self._send(planned, planned.at_seconds))

    async def _session(self, calls: Sequence[Planned]) -> None:
        due = calls[0].at_seconds
        for number, call in enumerate(calls):
            due = self.now + call.think_seconds if number else due
            await self.until(due)
            await self._send(call, due)

    async def _send(self, planned: Planned, due: float) -> None:
        sent_at, began = self.now, time.perf_counter()
        self._turn += 1
        turn, broken, fault = self._turn, 0, Fault("there is no target")
        for resent in range(len(self.load.ports)):
            target = (turn + resent) % len(self.load.ports)
            received, fault = await self._attempt(target, planned.body)
            if fault is None or fault.began or (received is not None and received.status):
                break
            broken += not fault.refused
        broken += fault is not None and fault.began
        ended, speed_up = time.perf_counter(), self.load.speed_up
        first_at = received.first_at if received is not None and received.first_at is not None else ended
        usage = {} if received is None else _usage(received.body)
        self.answers.append(
            Answer(
                number=planned.number,
                sent_at=sent_at,
                lateness=sent_at - due,
                ttft=(first_at - began) * speed_up,
                total=(ended - began) * speed_up,
                prompt_tokens=usage.get("prompt_tokens", 0),
                cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
                target=target,
                resent=resent,
                broken=broken,
                error=fault.error if fault else _trouble(received),
            )
        )

    async def _attempt(self, target: int, body: bytes) -> tuple[_Received | None, Fault | None]:
        try:
            client = await self._client(target)
        except OSError as error:
            return None, Fault(f"no connection ({type(error).__name__})", refused=True)
        head = f"POST /v1/chat/completions HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n".encode()
        received = client.ask(head, body)
        try:
            fault = await asyncio.wait_for(received.done, ANSWER_SECONDS)
        except TimeoutError:
            fault = Fault("no answer in time", began=True)
        if fault is None and client.transport is not None and not client.transport.is_closing():
            self._idle[target].append(client)
        elif client.transport is not None:
            client.transport.close()
        return received, fault

    async def _client(self, target: int) -> _Client:
        idle = self._idle[target]
        while idle:
            client = idle.pop()
            if client.transport is not None and not client.transport.is_closing():
                return client
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(_Client, "127.0.0.1", self.load.ports[target])
        return made


def _sessions(planned: Sequence[Planned]) -> list[list[Planned]]:
    sessions: dict[int, list[Planned]] = defaultdict(list)
    for request in planned:
        sessions[request.session].append(request)
    return list(sessions.values())


def _trouble(received: _Received | None) -> str | None:
    if received is None or received.status != 200:
        return f"HTTP {received.status if received else 0}"
    return None if b"[DONE]" in received.body else "the answer ended early"


def _usage(body: bytes) -> Mapping[str, Any]:
    """The usage event of a stream; empty where there is none."""
    at = body.rfind(USAGE_MARK)
    start, end = body.rfind(b"data:", 0, max(at, 0)), body.find(b"\n", max(at, 0))
    if at < 0 or start < 0:
        return {}
    try:
        return json.loads(body[start + 5 : end]).get("usage") or {}
    except ValueError:
        return {}
