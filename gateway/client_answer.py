"""The answer on the client's side of the gateway: head, framing and body, written straight to its transport."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from http import HTTPStatus
from typing import Final, cast

from aiohttp import HttpVersion11
from aiohttp.web import BaseRequest, StreamResponse

from gateway.client_request import ClientRequest
from gateway.dialects.core import Dialect
from gateway.dialects.openai import OPENAI
from gateway.errors import GatewayError, Headers

_STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_LAST_CHUNK: Final = b"0\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_JSON: Final = b"content-type: application/json\r\n"
_OK: Final = 200

UNBUFFERED: Final = b"cache-control: no-cache\r\nx-accel-buffering: no\r\n"
"""Asks whoever passes a stream on not to gather it."""

STREAM_FIELDS: Final = b"content-type: text/event-stream; charset=utf-8\r\n" + UNBUFFERED
"""The head of a stream that begins with a heartbeat."""


class Sent:
    """What a handler returns to aiohttp when the answer is already on its way: all that is left to know is whether
    the connection stays."""

    __slots__ = ("keep_alive",)

    def __init__(self, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, _request: BaseRequest) -> None:
        """Nothing: the head has been written."""

    async def write_eof(self, _data: bytes = b"") -> None:
        """Nothing: the body has been written."""


class ClientAnswer:
    """One answer to one request. `begin` once, `write` any number of times, the last time with `last`.

    The head leaves together with the first piece of the body, in one write; until then `started` is false and
    another answer may be given instead.
    """

    __slots__ = (
        "_chunked",
        "_http_1_1",
        "_pending_head",
        "_protocol",
        "_request",
        "dialect",
        "fields",
        "head_sent",
        "keep_alive",
        "request_id",
        "started",
    )

    def __init__(self, request: ClientRequest, *, keep_alive: bool) -> None:
        self._request = request
        self._protocol = request.protocol
        self._http_1_1 = request.version >= HttpVersion11
        self._chunked = False
        self._pending_head = b""
        self.keep_alive = keep_alive and request.keep_alive
        self.dialect: Dialect = OPENAI
        self.request_id = ""
        """What the caller knows the request by, once it has one."""
        self.fields = b""
        """Header lines, each ended by CRLF, that every answer to this request carries."""
        self.started = False
        self.head_sent = False
        """A heartbeat took the head of a stream along: whatever comes is told in band."""

    def begin(self, status: int, fields: bytes, length: int | None) -> None:
        """Prepare the head. `length` in bytes; None chunks the body, or ends it by the close for HTTP/1.0.

        Nothing happens where heartbeats have taken it along.
        """
        if self.head_sent:
            return
        # What is left of a body that nobody read would be taken for the next request.
        self.keep_alive = self.keep_alive and self._request.content.is_eof()
        if length is not None:
            framing = b"content-length: %d\r\n" % length
        elif self._http_1_1:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            self.keep_alive = False
            framing = b""
        status_line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
        self._pending_head = b"".join((status_line, fields, self.fields, framing, self._connection_line(), b"\r\n"))

    def write(self, payload: bytes, *, last: bool) -> None:
        """Send a piece of the body; nothing happens when the client is gone."""
        self._send(payload, last=last)
        self.started = True

    def pass_on(self, payload: bytes) -> bool:
        """Send a piece of the body that is neither empty nor the last; whether the client has too much unread now."""
        transport = self._protocol.transport
        if transport is not None:
            framed = b"%x\r\n%b\r\n" % (len(payload), payload) if self._chunked else payload
            transport.write(self._pending_head + framed if self._pending_head else framed)
        self._pending_head = b""
        self.started = True
        return self._protocol._paused  # aiohttp's `writing_paused` without a call: this is for each event

    def heartbeat(self) -> None:
        """Send an event that clients pass over, and before the first one the head of a stream.

        `started` stays false: an answer, or an error in band, may still come of any worker.
        """
        if not self.head_sent:
            self.begin(_OK, STREAM_FIELDS, None)
            self.head_sent = True
        self._send(self.dialect.heartbeat, last=False)

    def _send(self, payload: bytes, *, last: bool) -> None:
        if self._chunked:
            framed = b"%x\r\n%b\r\n" % (len(payload), payload) if payload else b""
            payload = framed + _LAST_CHUNK if last else framed
        transport = self._protocol.transport
        if transport is not None:
            transport.write(self._pending_head + payload if self._pending_head else payload)
        self._pending_head = b""

    def whole(self, status: int, fields: bytes, body: bytes) -> None:
        """A complete answer in one write."""
        self.begin(status, fields, len(body))
        self.write(body, last=True)

    def error(self, error: GatewayError) -> None:
        """An answer in the caller's own error shape."""
        if self.head_sent:
            self.in_band(error)
            return
        self._chunked = False
        dialect = self.dialect
        body = dialect.error_body(error, self.request_id)
        self.begin(dialect.error_status(error), _JSON + header_lines(error.headers), len(body))
        # What follows the head of an answer to HEAD is read as the next answer.
        self.write(b"" if self._request.method == "HEAD" else body, last=True)

    def in_band(self, error: GatewayError) -> None:
        """End a stream whose head is out with an error event."""
        self.keep_alive = False
        self.write(self.dialect.in_band_event(error, self.request_id), last=True)

    def abort(self) -> None:
        """Reset the connection, so that nobody takes what was sent for a complete answer."""
        self.keep_alive = False
        transport = self._protocol.transport
        if transport is None:
            return
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        transport.abort()

    @property
    def chunked(self) -> bool:
        """Whether the body, once begun, is in chunks, to which another can be added."""
        return self._chunked

    @property
    def stalled(self) -> bool:
        """Whether the client reads more slowly than the worker writes: its transport is over its high-water mark."""
        return self._protocol.writing_paused

    async def drained(self, seconds: float) -> None:
        """Until the client has caught up; TimeoutError when it does not in `seconds`."""
        async with asyncio.timeout(seconds):
            await self._request.writer.drain()

    def sent(self) -> StreamResponse:
        """What to return to aiohttp."""
        return cast(StreamResponse, _STAYS if self.keep_alive else _CLOSES)

    def _connection_line(self) -> bytes:
        if not self.keep_alive:
            return b"connection: close\r\n"
        return b"" if self._http_1_1 else b"connection: keep-alive\r\n"


def already_sent(keep_alive: bool) -> StreamResponse:
    """What tells aiohttp that it has nothing to send itself."""
    return cast(StreamResponse, _STAYS if keep_alive else _CLOSES)


_STAYS: Final = Sent(keep_alive=True)
_CLOSES: Final = Sent(keep_alive=False)


def last_words(error: GatewayError) -> bytes:
    """A complete answer that belongs to no request; the connection closes behind it."""
    body = error.openai_body()
    framing = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    return _STATUS_LINES[error.status] + _JSON + header_lines(error.headers) + framing + body


def header_lines(headers: Headers) -> bytes:
    """Header lines of our own making, each ended by CRLF."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")
