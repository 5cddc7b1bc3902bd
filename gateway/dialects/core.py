"""What a dialect must say: how an error looks, in a body and in a stream, and where the usage stands."""

from __future__ import annotations

from typing import Protocol

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
    """One way of talking to callers. Stateless."""

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
