"""The data port: which paths exist, how a fault becomes an answer, and how the gateway leaves without losing anyone."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
from aiohttp import HttpVersion10, HttpVersion11
from aiohttp.web import StreamResponse

from gateway.bodies import let_rest_pass
from gateway.client_answer import ClientAnswer
from gateway.client_request import ClientRequest
from gateway.connections import Bounds, Connections
from gateway.descriptors import room_for_clients
from gateway.dialects.core import Dialect
from gateway.dialects.openai import OPENAI
from gateway.dialects.table import dialect_of
from gateway.errors import GatewayError, MethodNotAllowed, ModelNotFound, UnknownPath, UnsupportedVersion
from gateway.fleet import Fleet
from gateway.http_server import Handler, HttpServer
from gateway.logs import tell_fault
from gateway.metrics import Metrics
from gateway.openapi import MODELS_PATH
from gateway.proxy import Proxy
from gateway.request_fields import refuse_doubtful, request_id_of, switches_protocol
from gateway.timeout_settings import Limits, Timeouts
from gateway.upstream import Upstream
from gateway.wire import Endpoint

BACKLOG: Final = 4096
LAST_WORDS_SECONDS: Final = 2.0
"""For the error events of streams that the grace was too short for."""

_JSON: Final = b"content-type: application/json\r\n"

Handle = Callable[[ClientRequest, ClientAnswer], Awaitable[None]]

log: Final = logging.getLogger("homing.server")


class Route(NamedTuple):
    """What one path does: its method, who answers, and in which dialect."""

    method: str
    handle: Handle
    dialect: Dialect = OPENAI


class DataServer:
    """Listens for clients. Exactly the paths in its table exist; nothing of a path ever reaches a worker."""

    def __init__(
        self,
        proxy: Proxy,
        fleet: Fleet,
        upstream: Upstream,
        metrics: Metrics,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
    ) -> None:
        timeouts, limits = timeouts or Timeouts(), limits or Limits()
        self._proxy = proxy
        self._fleet = fleet
        self._upstream = upstream
        self.shares_port = False
        """Whether other processes listen at the same port; set before `start`."""
        self._draining = False
        self._open = 0
        self._all_done = asyncio.Event()
        self._all_done.set()
        self._write_seconds = timeouts.write_seconds
        self._linger_bytes = limits.body_bytes
        bounds = Bounds(limits.connections, room_for_clients(), timeouts.header_seconds, timeouts.write_seconds)
        self._http = HttpServer(self._answer, bounds, timeouts.keep_alive_seconds, metrics)
        self._listener: asyncio.Server | None = None
        self._routes: dict[str, Route] = {
            **{each.value: Route("POST", partial(self._ask, each), dialect_of(each)) for each in Endpoint},
            MODELS_PATH: Route("GET", self._models),
        }

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which matters where `port` is 0. OSError when it is taken."""
        self._listener = await asyncio.get_running_loop().create_server(
            self._http, host, port, backlog=BACKLOG, reuse_address=True, reuse_port=self.shares_port
        )
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def connections(self) -> Connections[Handler]:
        """Who is connected."""
        return self._http.waits

    @property
    def open_requests(self) -> int:
        """Requests begun and not yet answered."""
        return self._open

    def drain(self) -> None:
        """From now on every answer asks its client to go elsewhere; requests are still taken."""
        self._draining = True

    async def stop(self, grace_seconds: float) -> None:
        """Take no new connection, let open requests end within the grace, and give those that do not an error event.

        A kept connection may still bring a request until then: it is served, and told to close.
        """
        self.drain()
        if self._listener is not None:
            self._listener.close()
        if not await self._ended(grace_seconds):
            self._upstream.close()
            await self._ended(LAST_WORDS_SECONDS)
        self._http.pre_shutdown()  # lets go of kept connections at once; `shutdown` would wait for them
        await self._http.shutdown(LAST_WORDS_SECONDS)
        self._upstream.close()

    async def _ended(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._all_done.wait()
        except TimeoutError:
            return False
        return True

    async def _answer(self, request: ClientRequest) -> StreamResponse:
        answer = ClientAnswer(request, keep_alive=not self._draining)
        self._open += 1
        if self._open == 1:
            self._all_done.clear()
        try:
            if not answer.stalled or await self._takes_on(answer):
                await self._dispatch(request, answer)
        finally:
            self._open -= 1
            if not self._open:
                self._all_done.set()
        if not request.content.is_eof():
            await let_rest_pass(request, self._linger_bytes)
        return answer.sent()

    async def _takes_on(self, answer: ClientAnswer) -> bool:
        """Whether the client takes its answers; one that pipelines and does not read must not fill the memory."""
        try:
            await answer.drained(self._write_seconds)
        except (TimeoutError, ConnectionError):
            answer.abort()
            return False
        return True

    async def _dispatch(self, request: ClientRequest, answer: ClientAnswer) -> None:
        """Run the route; whatever it raises becomes an answer, once."""
        try:
            await self._route(request, answer)(request, answer)
        except GatewayError as error:
            _name(request, answer)
            self._refuse(answer, error)
        except ConnectionError:
            answer.abort()
        except Exception as error:  # noqa: BLE001 - the one border where faults of our own end
            tell_fault(log, error, "while answering a request")
            self._refuse(answer, GatewayError("The gateway failed; the operator's log says why."))

    def _refuse(self, answer: ClientAnswer, error: GatewayError) -> None:
        if answer.started:
            answer.abort()
        else:
            answer.error(error)

    def _route(self, request: ClientRequest, answer: ClientAnswer) -> Handle:
        # The raw target, not a parsed one: no dot segment, escape or absolute form can mean one of these paths.
        path = request.raw_path.partition("?")[0]
        found = self._routes.get(path) or (Route("GET", self._model) if path.startswith(f"{MODELS_PATH}/") else None)
        if found is not None:
            answer.dialect = found.dialect
        elif path.startswith(f"{Endpoint.MESSAGES.value}/"):
            answer.dialect = dialect_of(Endpoint.MESSAGES)
        if request.version not in (HttpVersion10, HttpVersion11):
            raise UnsupportedVersion("Only HTTP/1.0 and HTTP/1.1 are spoken here.")
        refuse_doubtful(request)
        answer.keep_alive = answer.keep_alive and not switches_protocol(request)
        if found is None:
            raise UnknownPath(f"There is nothing here; there are {', '.join(self._routes)}.")
        if request.method != found.method:
            raise MethodNotAllowed(f"Use {found.method} here.", headers=(("allow", found.method),))
        return found.handle

    def _ask(self, endpoint: Endpoint, request: ClientRequest, answer: ClientAnswer) -> Awaitable[None]:
        return self._proxy.handle(request, endpoint, answer)

    async def _models(self, request: ClientRequest, answer: ClientAnswer) -> None:
        _name(request, answer)
        cards = list(self._cards(request).values())
        answer.whole(200, _JSON, msgspec.json.encode({"object": "list", "data": cards}))

    async def _model(self, request: ClientRequest, answer: ClientAnswer) -> None:
        """One card; the name may hold slashes, escaped or not."""
        _name(request, answer)
        name = unquote(request.raw_path.partition("?")[0].removeprefix(f"{MODELS_PATH}/"))
        card = self._cards(request).get(name)
        if card is None:
            raise ModelNotFound("The model does not exist, or this key may not use it.", param="model")
        answer.whole(200, _JSON, msgspec.json.encode(card))

    def _cards(self, request: ClientRequest) -> dict[str, dict[str, Any]]:
        """What this caller may ask for, by name."""
        tenant = self._proxy.identify(request)
        return {card.id: card.public() for card in self._fleet.models() if tenant.may_use(card.id)}


def _name(request: ClientRequest, answer: ClientAnswer) -> None:
    """Give a request that has no bill an id, its caller's own or one of ours."""
    if not answer.request_id:
        answer.request_id = request_id_of(request) or os.urandom(8).hex()
        answer.fields = answer.dialect.id_lines(answer.request_id)
