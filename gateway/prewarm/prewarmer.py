"""Prewarming as a whole: keeps what was asked lately, and starts an undertaking when a worker joins or will leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from gateway.attempts import Job
from gateway.fleet import Change, ChangeKind, Fleet
from gateway.metrics import Metrics
from gateway.prewarm.bodies import carries_media
from gateway.prewarm.pins import Pins, PreparesPrompts
from gateway.prewarm.sender import Sender
from gateway.prewarm.store import KeptPrompt, PromptStore
from gateway.prewarm.undertaking import Kind, Tools, Undertaking
from gateway.settings import Prewarm
from gateway.supervise import Supervisor, end
from gateway.tenant_settings import TenantSettings
from gateway.tenants import Tenant
from gateway.upstream import Upstream
from gateway.worker_state import Worker
from router.router import Router

EXPIRE_SECONDS = 10.0
"""Between two looks for prompts that are too old, when no traffic does it."""

log = logging.getLogger("homing.prewarm")


class Prewarmer:
    """Switched off, it keeps nothing and does nothing. Belongs to one event loop; register it after the routers'
    own listener, for a worker must be forgotten before it is filled anew."""

    def __init__(
        self,
        settings: Prewarm,
        fleet: Fleet,
        routers: Callable[[str], Router],
        upstream: Upstream,
        metrics: Metrics,
        clock: Callable[[], float],
        replicas: Callable[[], int] = lambda: 1,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor(metrics, clock)
        self._settings = settings
        self._clock = clock
        self.store = PromptStore(settings.store_bytes, settings.store_prompts, settings.store_seconds)
        self._sender = Sender(upstream)
        self._tools = Tools(self.store, fleet, routers, self._sender, metrics, settings, clock, replicas)
        self._undertakings: dict[str, Undertaking] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lost: set[str] = set()
        self._looking_after: tuple[asyncio.Task[None], ...] = ()
        self.pins: Pins | None = None
        self._tenants: Mapping[str, TenantSettings] = {}
        if settings.enabled:
            fleet.on_change(self._fleet_changed)
        metrics.before_scrape(self._refresh)

    async def __aenter__(self) -> Prewarmer:
        if self._settings.enabled:
            self._looking_after = (self._supervisor.start("prewarm expiry", self._expire),)
        if self._settings.enabled and self.pins is not None:
            self._looking_after += (self._supervisor.start("pinned prompts", self.pins.keep),)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(*self._tasks.values(), *self._looking_after)
        self.store.clear()

    def pin(
        self,
        prompts: PreparesPrompts,
        tenant: Callable[[str], Tenant | None],
        settings: Mapping[str, TenantSettings],
    ) -> None:
        """Look after what tenants pin, from now on or from another configuration on.

        Kept prompts of a tenant that is another one now are dropped: it may not be there, or not want them kept, or
        share its cache with others.
        """
        self.store.drop_of([name for name, before in self._tenants.items() if settings.get(name) != before])
        self._tenants = dict(settings)
        if self.pins is None:
            self.pins = Pins(self._tools, prompts, tenant)
        self.pins.become(settings)

    def remember(self, job: Job) -> None:
        """A request was answered well: its prompt may be asked again, or gone on from.

        Of a batch only the first prompt is known to placement, and images would be fetched again for nobody: such
        bodies are not kept.
        """
        if not self._settings.enabled or not job.tenant.prewarm or job.call.batch:
            return
        kept = self.store.find(job.prompt, job.body)
        if kept is not None and _is_of(kept, job):
            self.store.asked_again(kept, self._clock())
            return
        if not self.store.has_room_for(len(job.body)) or (_has_parts(job) and carries_media(job.body)):
            return
        kept = KeptPrompt(
            model=job.call.model,
            endpoint=job.call.endpoint,
            body=job.body,
            prompt=job.prompt,
            tenant=job.tenant.name,
            policy=job.tenant.policy,
            session=job.session,
            wishes=job.wishes,
            at=self._clock(),
        )
        self.store.keep(kept)

    def describe(self, worker: str) -> Mapping[str, Any] | None:
        """How the worker's latest undertaking goes; None when there was none."""
        undertaking = self._undertakings.get(worker)
        return undertaking.describe() if undertaking is not None else None

    @property
    def busy(self) -> bool:
        """Whether an undertaking is under way."""
        return any(not task.done() for task in self._tasks.values())

    def _fleet_changed(self, change: Change) -> None:
        worker, kind = change.worker, change.kind
        if kind is ChangeKind.RESTARTED:
            self._sender.forget(worker.name)
            self._lost.add(worker.name)
            if worker.up:
                self._start(worker, self._kind_of_join(worker))
        elif kind in (ChangeKind.UP, ChangeKind.RESUMED) and worker.up:
            self._start(worker, self._kind_of_join(worker))
        elif kind is ChangeKind.DRAINING:
            self._start(worker, Kind.LEAVE)
        elif kind in (ChangeKind.DOWN, ChangeKind.LEFT, ChangeKind.RESUMED):
            self._not_made_good(worker.name)
            self._stop(worker.name)
        if kind is ChangeKind.LEFT:
            self._sender.forget(worker.name)
            self._undertakings.pop(worker.name, None)
            self._lost.discard(worker.name)

    def _not_made_good(self, name: str) -> None:
        """A worker that restarts may answer a probe, or fall asleep, before it can be given anything."""
        undertaking = self._undertakings.get(name)
        if undertaking is not None and undertaking.kind is Kind.RESTART and not undertaking.ended:
            self._lost.add(name)

    def _kind_of_join(self, worker: Worker) -> Kind:
        """A restart is made good once."""
        if worker.name in self._lost:
            self._lost.discard(worker.name)
            return Kind.RESTART
        return Kind.JOIN

    def _start(self, worker: Worker, kind: Kind) -> None:
        self._stop(worker.name)
        if len(self.store):
            undertaking = self._undertakings[worker.name] = Undertaking(self._tools, worker, kind)
            self._tasks[worker.name] = asyncio.create_task(
                self._run(worker.name, undertaking), name=f"prewarm {worker.name}"
            )

    def _stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            # One that had not begun would never say so.
            self._undertakings[name].end()

    async def _run(self, name: str, undertaking: Undertaking) -> None:
        try:
            await undertaking.run()
        except Exception as error:  # noqa: BLE001 - it is nobody's request; what failed must not stop the gateway
            # The message is left out: it may quote what was sent.
            log.error("prewarming failed", extra={"fields": {"worker": name, "error": type(error).__name__}})  # noqa: TRY400
        else:
            log.info("prewarming ended", extra={"fields": {"worker": name, **undertaking.describe()}})

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(min(EXPIRE_SECONDS, self._settings.store_seconds / 4))
            self.store.expire(self._clock())

    def _refresh(self) -> None:
        self._tools.metrics.prewarm_kept_prompts.labels().set(len(self.store))
        self._tools.metrics.prewarm_kept_bytes.labels().set(self.store.size_bytes)


def _is_of(kept: KeptPrompt, job: Job) -> bool:
    """Whether what its home depends on is the same, too."""
    tenant = job.tenant
    same = kept.tenant == tenant.name and kept.policy == tenant.policy
    return same and kept.session == job.session and kept.wishes == job.wishes


def _has_parts(job: Job) -> bool:
    """Whether some message is made of parts; plain text carries nothing else, and need not be searched."""
    return any(type(message.get("content")) is list for message in job.call.source.messages or ())
