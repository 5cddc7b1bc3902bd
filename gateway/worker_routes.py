"""The admin port's /workers: look at the fleet, and change it where the configuration lets the port do so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec
from aiohttp import web

from gateway.errors import ChangesOff, GatewayError
from gateway.membership import Membership
from gateway.worker_state import Worker

_FROM_PAGES = {"origin", "sec-fetch-site"}
"""Browsers add them to what a page asks of another site, or, its name turned to this address, of its own."""

Act = Callable[[web.Request], Awaitable[web.Response]]


class TellsOfWarming(Protocol):
    """What is told of a worker's prewarming, where there is any."""

    def describe(self, worker: str) -> Mapping[str, Any] | None:
        """Plain data for /workers; None when nothing is or was done for the worker."""
        ...


class WorkerRoutes:
    """Handlers; `changes` says whether POST and DELETE are allowed at all."""

    def __init__(self, membership: Membership, *, changes: bool, warming: TellsOfWarming | None = None) -> None:
        self._membership = membership
        self._changes = changes
        self._warming = warming

    def register(self, routes: web.UrlDispatcher) -> None:
        """Add the paths. A worker's name may hold slashes."""
        routes.add_get("/workers", self.show)
        routes.add_post("/workers", self._changing(self.add))
        routes.add_post("/workers/{name:.+}/drain", self._changing(self.drain))
        routes.add_delete("/workers/{name:.+}/drain", self._changing(self.resume))
        routes.add_delete("/workers/{name:.+}", self._changing(self.remove))

    async def show(self, request: web.Request) -> web.Response:
        """Every worker: where it is, what it serves, how it does, and how its prewarming goes."""
        del request
        return _json({"workers": [self._shown(worker) for worker in self._membership.workers]}, 200)

    async def add(self, request: web.Request) -> web.Response:
        """201 and the workers as taken in; they get requests after their first good probe."""
        joined = await self._membership.add(await request.read())
        return _json({"workers": [self._shown(worker) for worker in joined]}, 201)

    async def drain(self, request: web.Request) -> web.Response:
        """202: nothing new goes there. It may be removed when `in_flight` is 0 and `prewarm` has ended."""
        return _json(self._shown(self._membership.drain(request.match_info["name"])), 202)

    async def resume(self, request: web.Request) -> web.Response:
        """200: it is no longer draining."""
        return _json(self._shown(self._membership.resume(request.match_info["name"])), 200)

    async def remove(self, request: web.Request) -> web.Response:
        """200 and the worker as it was; open requests there end in their own time."""
        return _json(self._shown(self._membership.remove(request.match_info["name"])), 200)

    def _changing(self, act: Act) -> Act:
        async def answer(request: web.Request) -> web.Response:
            try:
                if not self._changes:
                    raise ChangesOff(
                        "This port may not change the fleet: set `listen.admin_changes: true`, and an `admin_token` "
                        "where others can reach the port."
                    )
                if _FROM_PAGES & {name.lower() for name in request.headers}:
                    raise ChangesOff(
                        "Pages in a browser may not change the fleet: any site could, on behalf of who opens it. Send "
                        "the request without an Origin header, as curl does."
                    )
                return await act(request)
            except GatewayError as error:
                return web.Response(status=error.status, body=error.openai_body(), content_type="application/json")

        return answer

    def _shown(self, worker: Worker) -> dict[str, Any]:
        backend = worker.backend
        return {
            "name": worker.name,
            "url": backend.address.url,
            "models": sorted(backend.models),
            "weight": backend.weight,
            "max_in_flight": backend.max_in_flight,
            "state": worker.state.value,
            "trouble": worker.trouble,
            "draining": worker.draining,
            "in_flight": worker.in_flight,
            "prewarm": self._warming.describe(worker.name) if self._warming is not None else None,
        }


def _json(body: Any, status: int) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
