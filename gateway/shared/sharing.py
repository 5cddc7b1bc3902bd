"""What the gateway sees of its replicas: routers that tell and hear, and one state. Wires the parts of this package."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType

from gateway.fleet import Change, ChangeKind, Fleet
from gateway.metrics import Metrics
from gateway.settings import Redis
from gateway.shared.agreement import model_digest, news_key, worker_digest
from gateway.shared.link import Link
from gateway.shared.outbox import Outbox
from gateway.shared.peers import KnownWorker
from gateway.shared.replicas import JOINED, Replicas
from gateway.shared.stream import Stream
from gateway.supervise import Supervisor
from router.core import Prompt
from router.router import Router
from router.settings import RouterSettings
from router.tokenise import LoadedModelText

STREAM = "news"

log = logging.getLogger("homing.shared")

_NO_PROMPT = Prompt(0, 1, (), ())


class Sharing:
    """`async with` takes part, from then on and without end; whether Redis is there makes no request wait."""

    def __init__(
        self,
        settings: Redis,
        url: str,
        salt_key: bytes | None,
        fleet: Fleet,
        metrics: Metrics,
        clock: Callable[[], float],
        supervisor: Supervisor | None = None,
    ) -> None:
        """`url` is the secret that `settings.url` refers to; `salt_key` seals the news."""
        if salt_key is None:
            log.warning(
                "news is not sealed: there is no salt secret, and whoever writes to Redis can mislead placement"
            )
        self._settings = settings
        self._clock = clock
        self._fleet = fleet
        self._apart_from = 1
        self._routers: dict[str, Router] = {}
        self._digests: dict[str, bytes] = {}
        self._models: dict[bytes, str] = {}
        self._workers = {worker_digest(worker.name): worker.name for worker in fleet.workers}
        fleet.on_change(self._fleet_changed)
        something = asyncio.Event()
        self._outbox = Outbox(clock, something.set)
        self._stream = Stream(
            self._outbox,
            metrics,
            seal=news_key(salt_key),
            stream_bytes=settings.stream_bytes,
            digest_of=self._digests.get,
            router_of=self._router_of,
            worker_of=self._worker_of,
            clock=clock,
        )
        link = Link(url, f"{settings.name}:{STREAM}")
        self._replicas = Replicas(link, self._outbox, self._stream, metrics, something, self._set_state, supervisor)

    async def __aenter__(self) -> Sharing:
        await self._replicas.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._replicas.__aexit__(kind, error, trace)

    async def first_join(self) -> bool:
        """Wait until what the other replicas know is known here, at most `start_seconds`; whether that came about."""
        return await self._replicas.first_join(self._settings.start_seconds)

    @property
    def joined(self) -> bool:
        """Whether the other replicas are heard at this moment."""
        return self._replicas.state == JOINED

    @property
    def others(self) -> int:
        """Other replicas that gave a sign of life in the last seconds."""
        return self._stream.others

    def make_router(self, model: str, settings: RouterSettings) -> Router:
        """A router for a base model that tells what it does, and hears of the others once `loaded` was called."""
        router = self._routers[model] = Router(settings, partial(self._outbox.tell, model))
        router.apart_from = self._apart_from
        return router

    def loaded(self, model: str, text: LoadedModelText, block_tokens: int) -> None:
        """How a model's prompts are read here: only replicas that read them in the same way understand each other."""
        digest = model_digest(model, text, block_tokens)
        self._models.pop(self._digests.get(model, b""), None)
        self._digests[model] = digest
        self._models[digest] = model
        # Let the router know the workers, above all how much they hold, before it hears what they were sent.
        self._routers[model].peek(_NO_PROMPT, self._fleet.view(model), self._clock())

    def check_integrity(self) -> None:
        """Raise AssertionError when what is kept is unsound."""
        self._stream.check_integrity()

    def _set_state(self, joined: bool) -> None:
        self._apart_from = 0 if joined else max(1, self._stream.others)
        for router in self._routers.values():
            router.apart_from = self._apart_from

    def _router_of(self, digest: bytes) -> Router | None:
        model = self._models.get(digest)
        return self._routers.get(model) if model is not None else None

    def _worker_of(self, digest: bytes) -> KnownWorker | None:
        name = self._workers.get(digest)
        if name is None:
            return None
        figures = self._fleet.worker(name).figures
        return KnownWorker(name, figures.start_seconds if figures is not None else None)

    def _fleet_changed(self, change: Change) -> None:
        name = change.worker.name
        if change.kind is ChangeKind.JOINED:
            self._workers[worker_digest(name)] = name
        elif change.kind is ChangeKind.LEFT:
            self._workers.pop(worker_digest(name), None)
