"""The admin port of several processes: one page of metrics, ready when all are, everything else passed on to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import choose_encoder

from gateway.errors import GatewayError, NoBackend
from gateway.http_server import QuietLogger
from gateway.metrics import Metrics
from gateway.processes.parent import Member, Processes
from gateway.processes.sums import Sums, read_page
from gateway.supervise import Supervisor, end

ASK_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 2.0
"""Between two looks at what the processes count, so that little is lost with one that dies."""

BODY_BYTES: Final = 32 * 1024 * 1024
OWN: Final = -1
"""The parent's page among those of the processes."""

_PASSED_ON: Final = ("authorization", "content-type", "x-homing-tenant", "origin", "sec-fetch-site")
"""The last two tell of a page in a browser, which may not change the fleet."""

Answer = tuple[int, bytes, str]


class ProcessesAdmin:
    """Listens with `start`; to be used with `async with`."""

    def __init__(self, processes: Processes, metrics: Metrics, sums: Sums) -> None:
        self._processes = processes
        self._metrics = metrics
        self._sums = sums
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ProcessesAdmin:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_SECONDS))
        self._looking = Supervisor(self._metrics).start("processes", self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._looking)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which matters where `port` is 0. OSError when it is taken."""
        app = web.Application(client_max_size=BODY_BYTES)
        app.router.add_get("/livez", self.livez)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_route("*", "/{rest:.*}", self.pass_on)
        quiet = QuietLogger("homing.aiohttp")
        self._runner = web.AppRunner(app, access_log=None, logger=quiet, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, reuse_address=True).start()
        return int(self._runner.addresses[0][1])

    async def livez(self, request: web.Request) -> web.Response:
        """200 while this loop turns and the loops of all processes that serve."""
        del request
        serving = [member for member in self._processes.members if member.admin_port is not None]
        return _of_all(await self._ask_all(serving, "GET", "/livez"), "alive", True)

    async def readyz(self, request: web.Request) -> web.Response:
        """200 when every process says so, and none is to leave."""
        del request
        answers = await self._ask_all(self._processes.members, "GET", "/readyz")
        return _of_all(answers, "ready", not self._processes.is_leaving())

    async def metrics(self, request: web.Request) -> web.Response:
        """What all have counted."""
        await self._take_pages()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return web.Response(body=encode(self._sums), headers={"content-type": content_type})

    async def pass_on(self, request: web.Request) -> web.Response:
        """A question goes to one process that serves, a change to all; of several answers the worst is told."""
        members = [member for member in self._processes.members if member.admin_port is not None]
        asks = request.method in ("GET", "HEAD") or request.path == "/explain"
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        body = await request.read()
        chosen = members[:1] if asks else members
        answers = [
            answer
            for answer in await self._ask_all(chosen, request.method, request.raw_path, headers=headers, data=body)
            if answer is not None
        ]
        if not answers:
            error: GatewayError = NoBackend("No process serves at the moment.")
            return web.Response(status=error.status, body=error.openai_body(), content_type="application/json")
        status, told, kind = max(answers)
        return web.Response(status=status, body=told, headers={"content-type": kind})

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self._take_pages()

    async def _take_pages(self) -> None:
        members = [member for member in self._processes.members if member.admin_port is not None]
        ports = [member.admin_port for member in members]
        for member, port, answer in zip(members, ports, await self._ask_all(members, "GET", "/metrics"), strict=True):
            # Whoever has died meanwhile has left the sums already.
            if answer is not None and member.admin_port == port:
                self._sums.heard(member.index, read_page(answer[1].decode()))
        self._sums.heard(OWN, read_page(generate_latest(self._metrics.registry).decode()))

    async def _ask_all(self, members: Sequence[Member], method: str, path: str, **more: Any) -> list[Answer | None]:
        return list(await asyncio.gather(*(self._ask(member, method, path, **more) for member in members)))

    async def _ask(self, member: Member, method: str, path: str, **more: Any) -> Answer | None:
        """One process's answer; None where there is none in time."""
        if member.admin_port is None or self._session is None:
            return None
        try:
            async with self._session.request(method, f"http://127.0.0.1:{member.admin_port}{path}", **more) as answer:
                return answer.status, await answer.read(), answer.headers.get("content-type", "")
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None


def _of_all(answers: Sequence[Answer | None], word: str, so_far: bool) -> web.Response:
    well = so_far and all(answer is not None and answer[0] < 400 for answer in answers)
    told = [msgspec.Raw(answer[1]) if answer is not None else None for answer in answers]
    body = msgspec.json.encode({word: well, "processes": told})
    return web.Response(status=200 if well else 503, body=body, content_type="application/json")
