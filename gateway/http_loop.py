"""One connection's requests, one after the other: aiohttp's own loop without what every request pays for there.

aiohttp makes a task for each request and wakes another one at its end, and parses again, at each read of a body, what
it never held back. Here a connection's task runs its requests itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web import RequestHandler, StreamResponse
from aiohttp.web_protocol import ERROR

from gateway.client_answer import Sent
from gateway.client_request import ClientRequest

if TYPE_CHECKING:
    from aiohttp.web_protocol import _ErrInfo


class RequestLoop(RequestHandler):
    """aiohttp's connection handler with a loop of its own; all else, its parser before all, is aiohttp's."""

    __slots__ = ()

    async def start(self) -> None:
        """Serve requests until the connection is to be closed."""
        while not self._force_close:
            message, payload = await self._next_message()
            try:
                stays = await self._serve(message, payload)
            except ConnectionError:
                break
            except asyncio.CancelledError:
                # Nobody waits for this task. Kept in it, the error's traceback would hold the request, which knows the
                # task: all that a client who left had sent would stay until cycles are next sought.
                self.force_close()
                break
            except Exception as error:  # noqa: BLE001 - as aiohttp does: no fault may leave a connection hanging
                self.log_exception("Unhandled exception", exc_info=error)
                self.force_close()
                break
            if not stays:
                break
            self._rest()
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on where reading was paused; where it was not, nothing was held back."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    async def _next_message(self) -> tuple[RawRequestMessage | _ErrInfo, StreamReader]:
        if not self._messages:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        message = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        return message

    async def _serve(self, message: RawRequestMessage | _ErrInfo, payload: StreamReader) -> bool:
        """Answer one request; whether another may follow."""
        if isinstance(message, RawRequestMessage):
            request = self._request_of(message, payload)
            response, reset = await self._answer(request)
        else:
            request = self._request_of(ERROR, payload)
            response, reset = await self._handle_request(request, None, self._make_error_handler(message))
        self._keepalive = bool(response.keep_alive)
        if not payload.is_eof() and not self._force_close:
            self.close()
        return not reset and self._keepalive and not self._close and not self._force_close

    def _request_of(self, message: RawRequestMessage, payload: StreamReader) -> ClientRequest:
        manager, loop = self._manager, self._loop
        if manager is None:
            raise ConnectionResetError
        manager.requests_count += 1
        task = self._task_handler or cast("asyncio.Task[None]", asyncio.current_task(loop))
        return ClientRequest(message, payload, self, task, loop)

    async def _answer(self, request: ClientRequest) -> tuple[StreamResponse, bool]:
        """Run the handler; what it returns is mostly sent already."""
        handler = self._request_handler
        if handler is None:
            raise ConnectionResetError
        self._request_in_progress = True
        self._current_request = request
        try:
            try:
                response = await handler(request)
            finally:
                self._current_request = None
            if isinstance(response, Sent) and not self._upgraded:
                self.log_access(request, response, None)
                return response, False
            return await self.finish_response(request, response, None)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001 - the handler catches its own; this is what aiohttp does with the rest
            return await self.finish_response(request, self.handle_error(request, 500, error), None)
        finally:
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)

    def _rest(self) -> None:
        """Start the time that the connection may idle."""
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
