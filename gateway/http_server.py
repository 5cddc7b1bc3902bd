"""aiohttp's low-level server with what we override: nothing of a request's bytes in any log or error body."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from aiohttp import web
from aiohttp.http import HttpRequestParser, RawRequestMessage
from aiohttp.http_parser import HttpRequestParserPy
from aiohttp.web import BaseRequest, RequestHandler, RequestPayloadError, Response, Server, StreamResponse

from gateway.errors import GatewayError, InvalidRequest

KEEP_ALIVE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 1.0
"""How long a body nobody wants is still read, so that its sender gets to see the answer."""

MOST_HEADER_FIELDS: Final = 100
READ_BUFFER_BYTES: Final = 256 * 1024

log: Final = logging.getLogger("homing.http")


class QuietLogger(logging.Logger):
    """Takes what aiohttp would log, request bytes and bearer tokens among it, and says only that there was something.

    Not done: a rate limit of its own; at the default level nothing of it is written.
    """

    def handle(self, record: logging.LogRecord) -> None:
        """Pass on the kind of the fault only."""
        kind = type(record.exc_info[1]).__name__ if isinstance(record.exc_info, tuple) else record.levelname
        log.debug("http fault: %s", kind)


class Handler(RequestHandler):
    """aiohttp's connection handler, with generic answers to what it could not parse."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        """Let a request whose body breaks its framing fail now; aiohttp would leave its reader waiting."""
        super().data_received(data)
        if not self._messages or isinstance(self._messages[-1][0], RawRequestMessage):
            return
        request = self._current_request
        if request is not None and not request.content.is_eof():
            request.content.set_exception(RequestPayloadError("the body breaks its framing"))

    def handle_error(
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> StreamResponse:
        """A fixed text in the OpenAI shape; aiohttp's own repeats bytes of the request."""
        del exc, message
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is on its way already")
        error: GatewayError = InvalidRequest("The request is not well-formed HTTP/1.1.")
        if status >= web.HTTPInternalServerError.status_code:
            error = GatewayError("The gateway failed; the operator's log says why.")
        response = Response(status=error.status, body=error.openai_body(), content_type="application/json")
        response.force_close()
        return response


class HttpServer(Server):
    """Makes a `Handler` for each connection; a handler's task is cancelled when its client leaves."""

    def __init__(self, handler: Any) -> None:
        if HttpRequestParser is HttpRequestParserPy:
            raise RuntimeError(
                "aiohttp runs without its C parser, on whose strictness the gateway relies: "
                "unset AIOHTTP_NO_EXTENSIONS, or install a wheel of aiohttp for this platform"
            )
        super().__init__(handler, handler_cancellation=True)
        self._quiet = QuietLogger("homing.aiohttp")

    def __call__(self) -> RequestHandler:
        """One connection's handler."""
        return Handler(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            logger=self._quiet,
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes None for none
            auto_decompress=False,
            lingering_time=LINGER_SECONDS,
            max_headers=MOST_HEADER_FIELDS,
            read_bufsize=READ_BUFFER_BYTES,
        )
