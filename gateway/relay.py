"""From the worker's connection to the client's transport: payload passed on, events scanned, ends told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gateway.accounting import BROKEN_STREAM, CLIENT_GONE, Bill
from gateway.body_framing import UntilCloseFraming
from gateway.client_answer import UNBUFFERED, ClientAnswer
from gateway.dialects.core import worker_message
from gateway.errors import (
    EndpointNotServed,
    GatewayError,
    GatewayShutdown,
    RateLimited,
    TooManyConnections,
    UpstreamFailed,
    UpstreamTimedOut,
    WorkerRefused,
)
from gateway.response_head import ResponseHead
from gateway.sse import EventTooLong
from gateway.upstream_connection import Cause, Connection, UpstreamFault

_EMPTY, _REFUSED, _FAULT, _BAD_GATEWAY = 204, 400, 500, 502
_NO_ENDPOINT: Final = frozenset((404, 405, 501))
AFTER_END_SECONDS: Final = 0.25
"""How long a worker may take to end the body of a stream whose last event it has sent."""

_USAGE_LIMIT_BYTES: Final = 4 * 1024 * 1024


class Passage(Protocol):
    """How one kind of answer is passed on."""

    def feed(self, payload: bytes) -> None:
        """Take in payload as it comes; `Connection.complete` tells the last."""
        ...

    def broke(self, fault: UpstreamFault) -> None:
        """The worker's answer ended too early. Raises `GatewayError` if the client can still be given another."""
        ...


async def relay(
    connection: Connection, answer: ClientAnswer, bill: Bill, *, strip: bool, stalled_seconds: float
) -> None:
    """Pass a worker's answer on to its end, whatever that is; raises `GatewayError` while nothing has been sent.

    `strip` leaves out a stream's usage event, which the gateway asked for and the caller did not. A client that reads
    nothing for `stalled_seconds` is given up.
    """
    head = connection.answered_head
    kind_of_content = head.content_type
    streams = head.status == 200 and kind_of_content.startswith(b"text/event-stream")
    readable = streams or b"json" in kind_of_content or not kind_of_content
    if head.status < _REFUSED and (head.status >= _EMPTY or not readable):
        raise _no_answer(connection)
    if head.status >= _REFUSED or (answer.head_sent and not streams):
        kind: Callable[[Connection, ClientAnswer, Bill, bool], Passage] = RefusalPassage
    else:
        kind = EventPassage if streams else PlainPassage
    passage: Passage = kind(connection, answer, bill, strip)
    connection.attach(passage.feed)
    while not (connection.complete or connection.fault):
        # A client may have caught up between the pause and this look: then nothing else would end the pause.
        if answer.stalled or connection.paused:
            await _let_catch_up(connection, answer, bill, stalled_seconds)
        else:
            await connection.wait()
    if connection.fault is not None:
        passage.broke(connection.fault)


async def _let_catch_up(connection: Connection, answer: ClientAnswer, bill: Bill, seconds: float) -> None:
    try:
        await answer.drained(seconds)
    except TimeoutError:
        bill.broke(CLIENT_GONE, "client_stalled")
        connection.fail(Cause.CLIENT, "the client does not read")
        answer.abort()
    except ConnectionError:
        connection.fail(Cause.CLIENT, "the client left")
    else:
        connection.resume()


class EventPassage:
    """A stream of server-sent events: whole events only, an error event where the worker broke off."""

    def __init__(self, connection: Connection, answer: ClientAnswer, bill: Bill, strip: bool) -> None:
        self._connection = connection
        self._answer = answer
        self._bill = bill
        self._scanner = answer.dialect.scanner(strip_usage=strip)
        self._events = 0
        self._last_call: asyncio.TimerHandle | None = None
        head = connection.answered_head
        answer.begin(head.status, head.passed_on + UNBUFFERED, None)

    def feed(self, payload: bytes) -> None:
        """Scan, pass on what is whole, and take note of tokens and usage."""
        connection, scanner = self._connection, self._scanner
        try:
            ready = scanner.feed(payload)
        except EventTooLong:
            connection.fail(Cause.MALFORMED, "an event of its stream does not end")
            connection.abort()
            return
        if scanner.events != self._events:
            self._events = self._bill.output_events = scanner.events
            if self._bill.ttft_seconds is not None:
                self._bill.more_tokens(connection.last_byte_at)
            elif scanner.has_content:
                self._bill.first_token(connection.last_byte_at)
        if connection.complete:
            self._end(ready)
        elif ready:
            if self._answer.pass_on(ready):
                connection.pause()
                connection.wake()
            if scanner.done and self._last_call is None:
                self._last_call = asyncio.get_running_loop().call_later(AFTER_END_SECONDS, self._end_without_worker)

    def _end_without_worker(self) -> None:
        """The last event came by and the body goes on: nothing is missing, and nobody waits for nothing (C-27)."""
        self._connection.fail(Cause.CLIENT, "its stream has ended and its body has not")

    def broke(self, fault: UpstreamFault) -> None:
        """Tell the client in band; after `[DONE]` nothing is missing."""
        if self._scanner.done:
            self._end(b"")
            return
        error = gateway_error(fault)
        if not self._answer.started:
            raise error
        if self._bill.status == CLIENT_GONE:
            return
        self._bill.broke(BROKEN_STREAM, error.code or error.type)
        self._answer.in_band(error)

    def _end(self, ready: bytes) -> None:
        scanner, connection = self._scanner, self._connection
        if self._last_call is not None:
            self._last_call.cancel()
        if isinstance(connection.framing, UntilCloseFraming) and not scanner.done:
            # Nothing but [DONE] tells a finished stream from a cut one here.
            if ready:
                self._answer.write(ready, last=False)
            connection.fail(Cause.BROKE, "the connection ended before [DONE]")
            return
        ready += scanner.finish()
        if scanner.failed:
            self._bill.broke(BROKEN_STREAM, "worker_error_event")
            self._bill.usage = scanner.usage
        else:
            self._bill.answered(200, scanner.usage)
        self._answer.write(ready, last=True)


class PlainPassage:
    """Any other answer: passed on as it is, kept aside for its usage, reset where the worker broke off."""

    def __init__(self, connection: Connection, answer: ClientAnswer, bill: Bill, _strip: bool) -> None:
        self._connection = connection
        self._head = connection.answered_head
        self._answer = answer
        self._bill = bill
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._begun = False

    def feed(self, payload: bytes) -> None:
        """Pass on; the first piece brings the head, with a length where one is known."""
        connection, answer = self._connection, self._answer
        if not self._begun:
            if connection.complete and not payload:
                raise _no_answer(connection)
            self._begun = True
            answer.begin(self._head.status, self._head.passed_on, self._length(payload))
        if connection.complete and not self._kept_bytes:
            self._end(payload, payload if len(payload) <= _USAGE_LIMIT_BYTES else None)
            return
        self._keep(payload)
        if connection.complete:
            self._end(payload, b"".join(self._kept) if self._kept_bytes <= _USAGE_LIMIT_BYTES else None)
        elif payload:
            answer.write(payload, last=False)
            if answer.stalled:
                connection.pause()
                connection.wake()

    def broke(self, fault: UpstreamFault) -> None:
        """Never let a cut answer look complete."""
        error = gateway_error(fault)
        if not self._answer.started:
            raise error
        if self._bill.status != CLIENT_GONE:
            self._bill.broke(BROKEN_STREAM, error.code or error.type)
        self._answer.abort()

    def _length(self, payload: bytes) -> int | None:
        if self._connection.complete:
            return len(payload)
        length = self._head.field(b"content-length")
        return int(length) if length is not None else None

    def _keep(self, payload: bytes) -> None:
        self._kept_bytes += len(payload)
        if self._kept_bytes <= _USAGE_LIMIT_BYTES:
            self._kept.append(payload)

    def _end(self, payload: bytes, body: bytes | None) -> None:
        if body is not None and isinstance(self._connection.framing, UntilCloseFraming) and not _is_json(body):
            self._connection.fail(Cause.BROKE, "the connection ended within the answer")
            return
        usage = self._answer.dialect.read_usage(body) if body is not None and self._head.status == 200 else None
        self._bill.answered(self._head.status, usage)
        self._answer.write(payload, last=True)


class RefusalPassage(PlainPassage):
    """A worker's error, or no stream where one is under way: kept until it is whole, then told as the caller's client
    reads it. One that is too long to keep is passed on as it is."""

    def feed(self, payload: bytes) -> None:
        """Keep; tell once, at the end."""
        connection, answer = self._connection, self._answer
        if self._begun:
            super().feed(payload)
            return
        self._keep(payload)
        if connection.complete:
            self._tell(b"".join(self._kept))
        elif self._kept_bytes > _USAGE_LIMIT_BYTES and not answer.head_sent:
            kept, self._kept = b"".join(self._kept), []
            super().feed(kept)

    def _tell(self, body: bytes) -> None:
        status, answer = self._head.status, self._answer
        self._bill.answered(status if status >= _REFUSED else _BAD_GATEWAY, None)
        if answer.head_sent:
            answer.in_band(_in_words(status, body))
        elif status in _NO_ENDPOINT and worker_message(body) is None:
            answer.error(EndpointNotServed("The model's workers do not serve this endpoint."))
        elif (told := answer.dialect.rephrased(status, body, answer.request_id)) is not None:
            answer.whole(told[0], b"content-type: application/json\r\n" + retry_lines(self._head), told[1])
        else:
            answer.whole(status, self._head.passed_on, body)


def _in_words(status: int, body: bytes) -> GatewayError:
    """A worker's refusal as an error to be told in band."""
    if status < _REFUSED:
        return UpstreamFailed("The model server did not stream its answer.")
    message = worker_message(body) or f"The model server answered with status {status}."
    refusal = RateLimited if status == RateLimited.status else WorkerRefused
    return refusal(message) if status < _FAULT else UpstreamFailed(message)


def retry_lines(head: ResponseHead) -> bytes:
    """Of the worker's head what tells when to try again."""
    return b"".join([name + b": " + value + b"\r\n" for name, value in head.fields if name.startswith(b"retry-after")])


def _no_answer(connection: Connection) -> UpstreamFailed:
    """A page, a pointer elsewhere, or nothing: of some proxy or of another program, never of a model."""
    connection.fail(Cause.MALFORMED, "it is neither JSON nor events")
    return UpstreamFailed("The model server answered with something else than JSON or events.")


def gateway_error(fault: UpstreamFault) -> GatewayError:
    """What the caller is told of a fault at the worker: what happened, not where."""
    if fault.cause is Cause.SHUTDOWN:
        return GatewayShutdown("The gateway is shutting down; try again.")
    if fault.cause is Cause.FILES:
        return TooManyConnections("The gateway has as many open files as it may; try again.")
    if fault.cause is Cause.SILENT:
        return UpstreamTimedOut("The model server did not answer in time.")
    if fault.cause is Cause.REFUSED:
        return UpstreamFailed("The model server cannot be reached.")
    return UpstreamFailed("The model server broke off before the answer was complete.")


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True
