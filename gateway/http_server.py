"""aiohttp's low-level server with what we add: bounds in time and number, nothing of a request in logs or errors."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_exceptions import LineTooLong
from aiohttp.http_parser import HttpRequestParserPy
from aiohttp.web import BaseRequest, RequestHandler, RequestPayloadError, Server, StreamResponse

from gateway.client_answer import already_sent, last_words
from gateway.client_sockets import has_left, keep_little_unsent
from gateway.connections import Bounds, Connections
from gateway.errors import GatewayError, HeadTooLarge, InvalidRequest, RequestTimeout, TooManyConnections
from gateway.http_loop import RequestLoop
from gateway.metrics import Metrics

MOST_HEADER_FIELDS: Final = 100
MOST_FIELD_BYTES: Final = 8190
"""Of the request line, and of a header field with its name."""

MOST_HEAD_BYTES: Final = 64 * 1024
"""Of a head that comes in pieces; one that comes at once is bounded by what is read at once."""

MOST_FRAMING_BYTES: Final = 512 * 1024
MOST_FRAMING_TIMES: Final = 6
"""What a body may take on the wire beside so many times its length: chunks of one byte take that, and extensions of
chunks, which nobody reads, would otherwise have no end. The bytes cover what is read at once and not parsed yet."""

MOST_PIPELINED: Final = 8
"""Requests that wait on one connection for those before them; then it is not read on."""

READ_BUFFER_BYTES: Final = 256 * 1024
LOOK_SECONDS: Final = 0.1
"""How often it is looked whether a client has left that is not read on."""

log: Final = logging.getLogger("homing.http")


class QuietLogger(logging.Logger):
    """Takes what aiohttp would log, request bytes and bearer tokens among it, and says only that there was something.

    Not done: a rate limit of its own; at the default level nothing of it is written.
    """

    def handle(self, record: logging.LogRecord) -> None:
        """Pass on the kind of the fault only."""
        kind = type(record.exc_info[1]).__name__ if isinstance(record.exc_info, tuple) else record.levelname
        log.debug("http fault: %s", kind)


class Handler(RequestLoop):
    """aiohttp's connection handler: bounded heads and pipelines, generic answers to what it could not parse."""

    __slots__ = ("_at_rest", "_body_bytes", "_head_bytes", "_server")

    def __init__(self, server: HttpServer, keep_alive_seconds: float, logger: logging.Logger) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=keep_alive_seconds,
            logger=logger,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None for none
            auto_decompress=False,
            lingering_time=0,
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._server = server
        self._at_rest = True
        self._head_bytes = 0
        self._body_bytes = 0
        # aiohttp's own bound is 32, and not to be set.
        self._max_msg_queue_size = MOST_PIPELINED
        self._msg_queue_resume_size = MOST_PIPELINED // 2
        self._parser = HttpRequestParser(
            self,
            loop,
            READ_BUFFER_BYTES,
            max_line_size=MOST_FIELD_BYTES,
            max_field_size=MOST_FIELD_BYTES,
            max_headers=MOST_HEADER_FIELDS,
            payload_exception=RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=MOST_PIPELINED,
        )

    def data_received(self, data: bytes) -> None:
        """Let a request whose body breaks its framing fail now; aiohttp would leave its reader waiting."""
        asked = self._request_count
        super().data_received(data)
        if self._request_count != asked:
            self._at_rest = False
            self._head_bytes = self._body_bytes = 0
            self._server.asked(self)
        elif not self._at_rest:
            self._take_piece_of_body(len(data))
        elif self._head_bytes or data.strip(b"\r\n"):  # an empty line may follow a body (RFC 9112, section 2.2)
            self._take_piece_of_head(len(data))
        if not self._messages or isinstance(self._messages[-1][0], RawRequestMessage):
            return
        request = self._current_request
        if request is not None and not request.content.is_eof():
            request.content.set_exception(RequestPayloadError("the body breaks its framing"))

    def _take_piece_of_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MOST_HEAD_BYTES:
            self._server.count_closed("large_head")
            self.refuse(HeadTooLarge("The request's head is too large."))
        else:
            self._server.head_began(self)

    def _take_piece_of_body(self, size: int) -> None:
        """Of the request that came last; those behind it are not parsed before it is whole."""
        self._body_bytes += size
        if self._body_bytes <= MOST_FRAMING_BYTES:
            return
        request = self._current_request
        content = self._messages[-1][1] if self._messages else request.content if request is not None else None
        if content is None or content.is_eof():
            return
        if self._body_bytes > MOST_FRAMING_BYTES + MOST_FRAMING_TIMES * content.total_bytes:
            content.set_exception(RequestPayloadError("the body is framing for the most part"))
            if not self._buffer_paused:
                self._pause_reading_for_buffer()

    def head_is_overdue(self) -> None:
        """Close; say why, unless nothing was asked: a client might take that for its next answer."""
        if self._head_bytes:
            self.refuse(RequestTimeout("The request's head came too slowly."))
        else:
            self.force_close()

    def refuse(self, error: GatewayError) -> None:
        """Answer outside of any request, and close."""
        if self.transport is not None:
            self.transport.write(last_words(error))
        self.force_close()

    def force_close(self) -> None:
        """Close at once, but for what is still to be sent, which has its own time."""
        transport = self.transport
        super().force_close()
        if transport is not None and transport.get_write_buffer_size():
            self._server.closing(self)

    def log_access(self, request: BaseRequest, response: StreamResponse, time: float | None) -> None:
        """Take note that an answer is complete, which is when aiohttp calls this."""
        del request, time
        if not response.keep_alive:
            if self.transport is not None and self.transport.get_write_buffer_size():
                self._server.closing(self)
        elif not self._messages:
            self._at_rest = True
            self._server.rested(self)

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> StreamResponse:
        """A fixed text in the OpenAI shape; aiohttp's own repeats bytes of the request, and names its version."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is on its way already")
        error: GatewayError = InvalidRequest("The request is not well-formed HTTP/1.1.")
        if isinstance(exc, LineTooLong):
            error = HeadTooLarge("The request line, or a header field, is too long.")
        elif status >= web.HTTPInternalServerError.status_code:
            error = GatewayError("The gateway failed; the operator's log says why.")
        if self.transport is not None:
            self.transport.write(last_words(error))
        return already_sent(keep_alive=False)

    def _pause_reading_for_buffer(self) -> None:
        super()._pause_reading_for_buffer()
        self._look_whether_left()

    def _look_whether_left(self) -> None:
        """A loop tells that a client has left only by reading, and here nothing is read."""
        transport = self.transport
        if transport is None or not self._buffer_paused:
            return
        if has_left(transport):
            transport.abort()
        else:
            self._loop.call_later(LOOK_SECONDS, self._look_whether_left)


class HttpServer(Server):
    """Makes a `Handler` for each connection; a handler's task is cancelled when its client leaves."""

    def __init__(self, handler: Any, bounds: Bounds, keep_alive_seconds: float, metrics: Metrics) -> None:
        if HttpRequestParser is HttpRequestParserPy:
            raise RuntimeError(
                "aiohttp runs without its C parser, on whose strictness the gateway relies: "
                "unset AIOHTTP_NO_EXTENSIONS, or install a wheel of aiohttp for this platform"
            )
        super().__init__(handler, handler_cancellation=True)
        self._quiet = QuietLogger("homing.aiohttp")
        self._keep_alive_seconds = keep_alive_seconds
        self.waits: Connections[Handler] = Connections(bounds)
        self._metrics = metrics
        metrics.before_scrape(self._tell_connections)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __call__(self) -> RequestHandler:
        """One connection's handler."""
        return Handler(self, self._keep_alive_seconds, self._quiet)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take it in, or close whoever gives way to it."""
        super().connection_made(handler, transport)
        keep_little_unsent(transport)
        made = cast(Handler, handler)
        leaving = self.waits.opened(made, self._loop.time())
        self._watch()
        if leaving is not None:
            self.count_closed("too_many")
        if leaving is made:
            made.refuse(TooManyConnections("The gateway has as many connections as it may; try again."))
        elif leaving is not None:
            leaving.force_close()

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget it."""
        super().connection_lost(handler, exc)
        self.waits.gone(cast(Handler, handler))

    def asked(self, handler: Handler) -> None:
        """A whole head came."""
        leaving = self.waits.asked(handler)
        if leaving is not None:
            self.count_closed("too_many")
            leaving.force_close()

    def head_began(self, handler: Handler) -> None:
        """A piece of a head came."""
        self.waits.head_began(handler, self._loop.time())
        self._watch()

    def rested(self, handler: Handler) -> None:
        """Its requests are answered."""
        self.waits.rested(handler)

    def closing(self, handler: Handler) -> None:
        """It is closed, but for bytes that nobody takes yet."""
        self.waits.closing(handler, self._loop.time())
        self._watch()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's signature
        """Close every connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await super().shutdown(timeout)

    def _watch(self) -> None:
        """One timer for all, at the soonest deadline."""
        deadline = self.waits.next_deadline()
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._close_overdue)

    def _close_overdue(self) -> None:
        self._timer = None
        overdue = self.waits.overdue(max(self._loop.time(), self._timer_at))
        for handler in overdue.heads:
            self.count_closed("slow_head")
            handler.head_is_overdue()
        for handler in overdue.closes:
            transport = self._connections.get(handler)
            if transport is not None:
                self.count_closed("unread")
                transport.abort()
        self._watch()

    def count_closed(self, reason: str) -> None:
        """A bound closed a connection."""
        self._metrics.client_connections_closed_total.labels(reason).inc()

    def _tell_connections(self) -> None:
        of_state = self._metrics.client_connections.labels
        of_state("idle").set(self.waits.idle)
        of_state("busy").set(self.waits.open - self.waits.idle)
