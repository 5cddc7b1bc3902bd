"""aiohttp's server with nothing of a request's bytes in any log or error: a header may be a key, a body is a prompt."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from backends.api_errors import InternalError, InvalidBodyError

logger = logging.getLogger("homing.worker")


def log_fault(request: web.BaseRequest, fault: Exception) -> None:
    """An error in the log, with its place; not `logger.exception`, for the exception's own words may quote a prompt."""
    where = "".join(traceback.format_tb(fault.__traceback__))
    logger.error("%s in %s\n%s", type(fault).__name__, request.path, where)


class QuietLogger(logging.Logger):
    """Takes what aiohttp would log, bytes of requests among it, and passes on the kind of the fault."""

    def handle(self, record: logging.LogRecord) -> None:
        """One line without the exception's own words."""
        kind = type(record.exc_info[1]).__name__ if isinstance(record.exc_info, tuple) else record.levelname
        logger.debug("HTTP fault: %s", kind)


class Handler(RequestHandler):
    """One connection; what could not be parsed gets an answer that repeats none of it."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,  # noqa: ARG002 - it quotes the request
        message: str | None = None,  # noqa: ARG002 - so does this
    ) -> web.StreamResponse:
        """A fixed sentence in vLLM's shape; ConnectionError when an answer is on its way already."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer is on its way already")
        malformed = status < web.HTTPInternalServerError.status_code
        error = (
            InvalidBodyError("The request is not well-formed HTTP/1.1.") if malformed else InternalError("No answer.")
        )
        response = web.Response(status=error.status, body=error.json(), content_type="application/json")
        response.force_close()
        return response


class QuietServer(web.Server):
    """A server in the place of one that aiohttp made, with connections of ours."""

    def __init__(self, made: web.Server) -> None:
        vars(self).update(vars(made))

    def __call__(self) -> RequestHandler:
        """One connection's handler."""
        return Handler(self, loop=asyncio.get_running_loop(), **self._kwargs)


class QuietRunner(web.AppRunner):
    """An application's runner that logs no bytes of requests, and leaves bodies as they came: vLLM unpacks none."""

    def __init__(self, app: web.Application, **options: Any) -> None:
        super().__init__(
            app, access_log=None, logger=QuietLogger("homing.worker.aiohttp"), auto_decompress=False, **options
        )

    async def _make_server(self) -> web.Server:
        return QuietServer(await super()._make_server())
