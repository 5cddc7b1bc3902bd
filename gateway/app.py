"""The only wiring: from a configuration to a running gateway, and back to nothing."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

from prometheus_client import CollectorRegistry

from gateway.accounting import Accounts
from gateway.admin import Admin, Readiness
from gateway.announcements import log_change, say_what_runs
from gateway.applying import Applier, upstream_timeouts
from gateway.attempts import Attempts
from gateway.config import Config, Secrets
from gateway.config_routes import ConfigRoutes
from gateway.departures import Departures
from gateway.discovery.static import static_backends
from gateway.events.service import Events
from gateway.fleet import Fleet
from gateway.gauges import Gauges
from gateway.limits.admission import build_limits
from gateway.limits.line import Line
from gateway.logs import RequestLog
from gateway.loop_watch import LoopWatch
from gateway.membership import Membership
from gateway.metrics import Metrics
from gateway.prewarm.prewarmer import Prewarmer
from gateway.probes import Probes
from gateway.prompts import Prompts
from gateway.proxy import Proxy
from gateway.record import Recorder
from gateway.reload import Reloader, Source
from gateway.server import DataServer
from gateway.serving import Serving, serving_facts
from gateway.shared.sharing import Sharing
from gateway.supervise import Supervisor
from gateway.tenants import Tenants
from gateway.trials import Trials
from gateway.upstream import Upstream
from gateway.version import homing_version
from gateway.worker_routes import WorkerRoutes

PROBED = "first probe of every worker"
LOADED = "tokenisers"
LISTENING = "API port"

log = logging.getLogger("homing.app")


class CannotListen(OSError):
    """A port is taken or an address is not this machine's; the message names both."""


class Gateway:
    """A whole gateway: `async with Gateway(...)` starts it, `drain()` lets it leave without losing a request.

    `request_log` takes a line for each request; `clock` gives monotonic seconds. Raises `CannotListen`, and
    `TokeniserError` for a configured tokeniser that cannot be read.
    """

    def __init__(
        self,
        config: Config,
        secrets: Secrets,
        *,
        source: Source | None = None,
        request_log: RequestLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.api_port = self.admin_port = 0
        self._stack = AsyncExitStack()
        self._request_log = request_log
        self.metrics = Metrics(CollectorRegistry())
        self.tasks = Supervisor(self.metrics, clock)
        self.fleet = Fleet(serving_facts(config.models), config.faults, clock)
        self._upstream = Upstream(upstream_timeouts(config), cancels_per_second=config.faults.cancels_per_second)
        self.fleet.on_change(log_change)
        self.tenants = Tenants(
            config.tenants, secrets.digests, secrets.salt_key, expiries=secrets.expiries, revoked=secrets.revoked
        )
        self.prompts = Prompts()
        self.sharing = self._sharing(secrets, clock)
        self.limits = build_limits(config.redis, secrets.redis_url, self.metrics, clock, self._others_heard, self.tasks)
        self.serving = Serving(
            config.models,
            self.fleet,
            self.prompts,
            self.sharing.make_router if self.sharing is not None else None,
            self.sharing.loaded if self.sharing is not None else None,
        )
        self.gauges = Gauges(self.metrics, self.fleet, self.serving.routers, clock)
        self.probes = Probes(self.fleet, config.probes, clock, self._make_trials(clock), self.tasks)
        self.events = Events(
            config.models, self.fleet, self.serving, self.metrics, clock, config.probes.timeout_seconds, self.tasks
        )
        self.readiness = Readiness()
        self._watch = LoopWatch(self.metrics, clock, self.tasks)
        self._recorder = Recorder(config.record, self.metrics, self.fleet.base_model) if config.record else None
        self._backends = static_backends(config.models, secrets.worker_keys)
        self.prewarmer = self._make_prewarmer(clock)
        self.prewarmer.pin(self.serving, self.tenants.named, config.tenants)
        self._membership = Membership(
            self.fleet, config.models, secrets.worker_keys, self.serving.expect, config.listen.worker_networks
        )
        self._departures = Departures(self.fleet, self._upstream, lambda: self.config.timeouts.drain_seconds)
        self.line = Line(self.fleet, self.metrics, clock, lambda: self.config.timeouts, self.limits.last_in_line)
        self.attempts = Attempts(
            self.fleet, self._upstream, self.metrics, clock, config.timeouts.write_seconds, config.faults, self.line
        )
        self._proxy = self._make_proxy(clock)
        self.server = DataServer(
            self._proxy, self.fleet, self._upstream, self.metrics, timeouts=config.timeouts, limits=config.limits
        )
        self.reloader = Reloader(config, secrets, source, self.metrics, self.tenants.revoke, supervisor=self.tasks)
        self._applier = self._make_applier()
        self.reloader.on_reload(self._apply, self._check)
        self._admin = self._make_admin(secrets, clock)

    async def __aenter__(self) -> Gateway:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def drain(self) -> None:
        """Leave politely: /readyz says no, requests are taken a little longer, then open ones may end."""
        timeouts = self.config.timeouts
        self.readiness.draining = True
        self.server.drain()
        log.info("draining", extra={"fields": {"open_requests": self.server.open_requests}})
        await asyncio.sleep(timeouts.drain_delay_seconds)
        await self.server.stop(timeouts.drain_seconds)

    def _make_proxy(self, clock: Callable[[], float]) -> Proxy:
        write_line = self._request_log.write if self._request_log is not None else None
        return Proxy(
            tenants=self.tenants,
            prompts=self.serving,
            routers=self.serving.router,
            fleet=self.fleet,
            attempts=self.attempts,
            accounts=Accounts(
                self.metrics,
                clock,
                write_line,
                self.serving.learn,
                self._recorder.record if self._recorder is not None else None,
                self._request_log,
            ),
            body_limit_bytes=self.config.limits.body_bytes,
            body_seconds=self.config.timeouts.body_seconds,
            remember=self.prewarmer.remember,
            heartbeat_seconds=self.config.timeouts.stream_heartbeat_seconds,
            admission=self.limits,
        )

    def _make_trials(self, clock: Callable[[], float]) -> Trials:
        return Trials(
            self.fleet,
            self._upstream,
            self.metrics,
            clock,
            trial_seconds=self.config.probes.timeout_seconds,
            first_byte_seconds=self.config.timeouts.first_byte_seconds,
        )

    def _make_prewarmer(self, clock: Callable[[], float]) -> Prewarmer:
        return Prewarmer(
            self.config.prewarm,
            self.fleet,
            self.serving.router,
            self._upstream,
            self.metrics,
            clock,
            replicas=lambda: 1 + (self.sharing.others if self.sharing is not None else 0),
            supervisor=self.tasks,
        )

    def _make_admin(self, secrets: Secrets, clock: Callable[[], float]) -> Admin:
        return Admin(
            readiness=self.readiness,
            watch=self._watch,
            tasks=self.tasks,
            metrics=self.metrics,
            fleet=self.fleet,
            serving=self.serving,
            tenants=self.tenants,
            clock=clock,
            token=secrets.admin_token,
            routes=(self._worker_routes().register, ConfigRoutes(self.reloader).register),
        )

    def _make_applier(self) -> Applier:
        return Applier(
            tenants=self.tenants,
            fleet=self.fleet,
            serving=self.serving,
            events=self.events,
            membership=self._membership,
            upstream=self._upstream,
            prewarmer=self.prewarmer,
            proxy=self._proxy,
            metrics=self.metrics,
            request_log=self._request_log,
        )

    async def _check(self, config: Config, secrets: Secrets) -> None:
        await self._applier.check(self.config, config, secrets)

    def _apply(self, config: Config, secrets: Secrets) -> None:
        # Said before it is done: what fails half-way is undone by a step back from there.
        before, self.config = self.config, config
        self._applier.apply(before, config, secrets)

    def _sharing(self, secrets: Secrets, clock: Callable[[], float]) -> Sharing | None:
        settings, url = self.config.redis, secrets.redis_url
        if settings is None or url is None:
            return None
        return Sharing(settings, url, secrets.salt_key, self.fleet, self.metrics, clock, self.tasks)

    def _others_heard(self) -> int | None:
        return self.sharing.others if self.sharing is not None and self.sharing.joined else None

    async def _join(self, sharing: Sharing) -> None:
        """Read what the other replicas know; without Redis, or when it takes too long, go on and read it later."""
        self.readiness.may_miss("redis", lambda: sharing.joined)
        await self._stack.enter_async_context(sharing)
        await sharing.first_join()

    def _worker_routes(self) -> WorkerRoutes:
        return WorkerRoutes(self._membership, changes=self.config.listen.admin_changes, warming=self.prewarmer)

    async def _start(self) -> None:
        """What answers questions comes first, what takes requests last; `_stack` undoes it in reverse."""
        for what in (PROBED, LOADED, LISTENING):
            self.readiness.wait_for(what)
        self.readiness.may_miss("configuration", lambda: self.reloader.refusal is None)
        self.readiness.must_have("a worker that takes requests", lambda: not self.attempts.fail)
        self._applier.brief(self.config)
        self.metrics.build_info.labels(homing_version(), platform.python_version()).set(1)
        self._leave_last()
        if self._recorder is not None:
            await self._stack.enter_async_context(self._recorder)
        await self._stack.enter_async_context(self._watch)
        await self._stack.enter_async_context(self._admin)
        listen = self.config.listen
        self.admin_port = await listen_at(self._admin.start, listen.admin_host, listen.admin_port)
        for backend in self._backends:
            self.fleet.add(backend)
        await self._stack.enter_async_context(self.probes)
        if not await self.probes.first_round():
            log.warning(
                "some workers have not answered a probe", extra={"fields": {"workers": self.probes.not_looked_at}}
            )
        self.readiness.done(PROBED)
        await self._stack.enter_async_context(self.events)
        await self.events.ask_all()
        await self.serving.load_all()
        await self.events.settled()
        if self.sharing is not None:
            await self._join(self.sharing)
        await self._stack.enter_async_context(self.limits)
        self.readiness.done(LOADED)
        self._stack.push_async_callback(self.server.stop, 0.0)
        await self._stack.enter_async_context(self.prewarmer)
        self.api_port = await listen_at(self.server.start, listen.host, listen.port)
        self.readiness.done(LISTENING)
        await self._stack.enter_async_context(self.reloader)
        say_what_runs(self.config, self.fleet, api_port=self.api_port, admin_port=self.admin_port)

    def _leave_last(self) -> None:
        self._stack.callback(self._departures.close)
        if self._request_log is not None:
            self._stack.callback(self._request_log.flush)
        self._stack.callback(self.prompts.close)
        self._stack.push_async_callback(self.serving.close)


async def listen_at(start: Callable[[str, int], Awaitable[int]], host: str, port: int) -> int:
    """Listen by `start`; `CannotListen` names the place."""
    try:
        return await start(host, port)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
