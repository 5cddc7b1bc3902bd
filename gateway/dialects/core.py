"""What a dialect must say: how an error looks, in a body and in a stream, and where the usage stands."""

from __future__ import annotations

from typing import Any, Final, Protocol

import msgspec

from gateway.errors import GatewayError
from gateway.wire import Usage


class StreamScanner(Protocol):
    """Reads a stream of server-sent events as it passes; see `gateway.sse.SseScanner` for what each part means."""

    events: int
    has_content: bool
    usage: Usage | None
    failed: bool
    done: bool

    def feed(self, data: bytes) -> bytes:
        """Take in the next bytes, cut anywhere; returns whole events, possibly none. Raises `sse.EventTooLong`."""
        ...

    def finish(self) -> bytes:
        """The bytes after the last border, at the clean end of the body."""
        ...


class Dialect(Protocol):
    """One way of talking to callers. Stateless. `heartbeat` is an event that its clients pass over."""

    @property
    def heartbeat(self) -> bytes:
        """Sent while nothing else is there to be sent."""
        ...

    def id_lines(self, request_id: str) -> bytes:
        """The header lines that tell the caller the request's id, each ended by CRLF."""
        ...

    def error_status(self, error: GatewayError) -> int:
        """The HTTP status of an error."""
        ...

    def error_body(self, error: GatewayError, request_id: str) -> bytes:
        """The JSON body of an error answer."""
        ...

    def in_band_event(self, error: GatewayError, request_id: str) -> bytes:
        """The event that ends a stream whose head is already with the caller."""
        ...

    def scanner(self, *, strip_usage: bool) -> StreamScanner:
        """Reads one stream; with `strip_usage` leaves out the event that only carries usage."""
        ...

    def read_usage(self, body: bytes) -> Usage | None:
        """The usage of an answer that came whole; None where there is none to read."""
        ...

    def rephrased(self, status: int, body: bytes, request_id: str) -> tuple[int, bytes] | None:
        """Status and body to send in place of a worker's error; None where the worker speaks this dialect."""
        ...


class _Told(msgspec.Struct):
    error: Any = None


_TOLD: Final = msgspec.json.Decoder(_Told)


def worker_message(body: bytes) -> str | None:
    """The message in a worker's `{"error": {"message": …}}` or `{"error": "…"}`; None for anything else."""
    try:
        error = _TOLD.decode(body).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else None
