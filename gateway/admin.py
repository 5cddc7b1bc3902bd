"""The admin port: is it alive, is it ready, what does it count, and why would a request go where."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client.exposition import choose_encoder

from gateway.admin_guard import admin_guard
from gateway.errors import GatewayError, InvalidRequest, ModelNotFound
from gateway.explain import explain_call, explain_placement, read_request
from gateway.fleet import Fleet
from gateway.http_server import QuietLogger
from gateway.loop_watch import LoopWatch
from gateway.metrics import Metrics
from gateway.rewrites.apply import rewrite_call_soon
from gateway.serving import Serving
from gateway.supervise import Supervisor
from gateway.tenants import Tenant, Tenants
from gateway.worker_state import Worker

EXPLAIN_BYTES = 32 * 1024 * 1024
SHUTDOWN_SECONDS = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Readiness:
    """Whether the gateway should be sent requests, and what keeps it from that."""

    def __init__(self) -> None:
        self._waiting_for: dict[str, None] = {}
        self._may_fail: dict[str, Callable[[], bool]] = {}
        self._must_have: dict[str, Callable[[], bool]] = {}
        self.draining = False

    def wait_for(self, what: str) -> None:
        """Not ready until `done(what)`."""
        self._waiting_for[what] = None

    def done(self, what: str) -> None:
        """One thing less to wait for."""
        self._waiting_for.pop(what, None)

    def may_miss(self, what: str, is_there: Callable[[], bool]) -> None:
        """Something that makes the gateway better while `is_there`, and that it is ready without."""
        self._may_fail[what] = is_there

    def must_have(self, what: str, is_there: Callable[[], bool]) -> None:
        """Not ready whenever it is not there."""
        self._must_have[what] = is_there

    @property
    def degraded(self) -> tuple[str, ...]:
        """What is missing though it is ready."""
        return tuple(what for what, is_there in self._may_fail.items() if not is_there())

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not; empty when ready."""
        missing = [what for what, is_there in self._must_have.items() if not is_there()]
        return (*self._waiting_for, *missing, *(("draining",) if self.draining else ()))


class Admin:
    """The endpoints; `clock` gives the monotonic seconds that routers are told."""

    def __init__(
        self,
        *,
        readiness: Readiness,
        watch: LoopWatch,
        tasks: Supervisor,
        metrics: Metrics,
        fleet: Fleet,
        serving: Serving,
        tenants: Tenants,
        clock: Callable[[], float],
        token: str | None = None,
        routes: Sequence[Callable[[web.UrlDispatcher], None]] = (),
    ) -> None:
        """`routes` add what other rooms answer on this port; `token` is what the port asks for, if it asks."""
        self._readiness = readiness
        self._watch = watch
        self._tasks = tasks
        self._metrics = metrics
        self._fleet = fleet
        self._serving = serving
        self._tenants = tenants
        self._clock = clock
        self._token = token
        self._routes = tuple(routes)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port, which matters where `port` is 0. OSError when it is taken."""
        app = web.Application(client_max_size=EXPLAIN_BYTES, middlewares=[admin_guard(self._token)])
        app.router.add_get("/livez", self.livez)
        app.router.add_get("/readyz", self.readyz)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/explain", self.explain)
        for register in self._routes:
            register(app.router)
        self._runner = web.AppRunner(
            app, access_log=None, logger=QuietLogger("homing.aiohttp"), shutdown_timeout=SHUTDOWN_SECONDS
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, reuse_address=True).start()
        return int(self._runner.addresses[0][1])

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def livez(self, request: web.Request) -> web.Response:
        """200 while the event loop turns and no background task stays dead; no dependency is asked."""
        del request
        dead = self._tasks.dead()
        alive = self._watch.turns and not dead
        body = {"alive": alive, "loop_lag_seconds": round(self._watch.worst_lag_seconds, 4), "dead_tasks": dead}
        return _json(body, 200 if alive else 503)

    async def readyz(self, request: web.Request) -> web.Response:
        """200 when requests may come; the body says what is missing and which workers are down."""
        del request
        reasons = self._readiness.reasons
        body = {
            "ready": not reasons,
            "waiting_for": list(reasons),
            "degraded": list(self._readiness.degraded),
            "panic": [model for model in self._serving.routers if self._fleet.panics(model)],
            "workers_down": {worker.name: worker.trouble for worker in self._fleet.workers if worker.trouble},
            "workers": {worker.name: _worker(worker) for worker in self._fleet.workers},
            "models": self._serving.describe(),
        }
        return _json(body, 503 if reasons else 200)

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus' text format, or OpenMetrics for who accepts it."""
        self._metrics.refresh()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return web.Response(body=encode(self._metrics.registry), headers={"content-type": content_type})

    async def explain(self, request: web.Request) -> web.Response:
        """What would happen to the request in the body: keys, folds, and every candidate's numbers.

        The tenant is named by `?tenant=` or `x-homing-tenant`, and may be left out when there is only one. `?key=` is
        the fingerprint of one of its keys, for a tenant whose keys are kept apart.
        """
        try:
            tenant = self._tenant(request)
            return _json(await self._explained(tenant, await request.read()), 200)
        except GatewayError as error:
            return web.Response(status=error.status, body=error.openai_body(), content_type="application/json")

    def _tenant(self, request: web.Request) -> Tenant:
        names = self._tenants.names
        name = request.query.get("tenant") or request.headers.get("x-homing-tenant")
        if name is None and len(names) == 1:
            name = names[0]
        key = request.query.get("key")
        tenant = self._tenants.named(name, key) if name is not None else None
        if tenant is None and name in names:
            raise InvalidRequest(f"{name} has no key with this fingerprint; /config lists them.", param="key")
        if tenant is None:
            raise InvalidRequest(
                f"Say which tenant asks with ?tenant=NAME, one of: {', '.join(names)}.", param="tenant"
            )
        return tenant

    async def _explained(self, tenant: Tenant, body: bytes) -> dict[str, Any]:
        call, applied = await rewrite_call_soon(read_request(body), tenant.rewrites)
        if not tenant.may_use(call.model) or not self._fleet.knows(call.model):
            raise ModelNotFound(f"No model `{call.model}` for the tenant {tenant.name}.", param="model")
        tenant.check_partition(call.partition)
        salt = tenant.salt(call.model, client_salt=call.cache_salt, user=call.user)
        prompt = await self._serving.prepare(call.model, call.source, salt=salt, rules=tenant.fold)
        placement = self._serving.router(call.model).peek(
            prompt,
            self._fleet.view(call.model),
            self._clock(),
            tenant=tenant.name,
            policy=tenant.policy,
            session=call.session,
            max_tokens=call.max_tokens,
        )
        told = explain_call(call, prompt, salt, body, applied)
        if tenant.caveat is not None:
            told["caveat"] = tenant.caveat
        return {**told, "tenant": tenant.name, "placement": explain_placement(placement)}


def _worker(worker: Worker) -> dict[str, Any]:
    return {
        "state": worker.state.value,
        "draining": worker.draining,
        "in_flight": worker.in_flight,
        "cache": "known" if worker.events is None else f"believed: {worker.events}",
        "models": [card.id for card in worker.cards or ()],
    }


def _json(body: Any, status: int) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json")
