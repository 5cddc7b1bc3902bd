"""Every worker's KV events followed, and routers told whose word to go by.

One look every so often compares what should be followed with what is: who publishes, for which models, in which
routing blocks. A worker that restarts is asked anew where it publishes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from gateway.events.counts import EventCounts
from gateway.events.discovery import NotAsked, SourceFinder
from gateway.events.following import INCOMPLETE, Following
from gateway.events.sockets import Sockets, load_zmq
from gateway.events.sources import Source, SourceError, configured_sources
from gateway.events.stream import Turns
from gateway.fleet import Change, ChangeKind, Fleet
from gateway.logs import tell_fault
from gateway.metrics import Metrics
from gateway.placement_settings import EventSettings
from gateway.serving import Serving
from gateway.settings import Model
from gateway.supervise import Supervisor, end
from gateway.worker_state import State, Worker

LOOK_SECONDS = 0.2
ASK_AGAIN_SECONDS = 5.0
SETTLED_SECONDS = 3.0
"""How long a start waits for workers to say what they hold, and no longer."""

AUTOMATIC = ("auto", True)
"""YAML reads `off` as a truth value, and so somebody may write `on`."""

OFF = "events are off"
NO_ZMQ = "pyzmq is not installed"
NOT_ASKED = "not asked yet"
NO_EVENTS = "it publishes no events"
NO_MODEL = "no model of its own tokenizer is loaded"

log = logging.getLogger("homing.events")


class _Followed:
    """What is done about one worker. `sources` None: it has to be asked."""

    def __init__(self, settings: EventSettings | None) -> None:
        self.settings = settings
        self.sources: Sequence[Source] | None = None
        self.following: Following | None = None
        self.asking: asyncio.Task[None] | None = None
        self.ask_at = 0.0
        self.unusable: str | None = None


class Events:
    """Follows the workers of a fleet while it is entered; `clock` gives monotonic seconds."""

    def __init__(
        self,
        models: Mapping[str, Model],
        fleet: Fleet,
        serving: Serving,
        metrics: Metrics,
        clock: Callable[[], float],
        timeout_seconds: float,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`timeout_seconds` is how long a worker may take to say where it publishes."""
        self._supervisor = supervisor or Supervisor(metrics, clock)
        self._models = models
        self._fleet = fleet
        self._serving = serving
        self._clock = clock
        self._finder = SourceFinder(timeout_seconds)
        self._turns = Turns()
        self._sockets: Sockets | None = None
        self._no_zmq = False
        self._followed: dict[str, _Followed] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._counts = EventCounts(metrics)
        metrics.before_scrape(self._count)
        fleet.on_change(self._fleet_changed)

    async def __aenter__(self) -> Events:
        await self._finder.__aenter__()
        for worker in self._fleet.workers:
            self._followed.setdefault(worker.name, _Followed(self._settings(worker)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._looking, *(each.asking for each in self._followed.values()))
        for name in tuple(self._followed):
            self._drop(name)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._sockets is not None:
            self._sockets.close()
        await self._finder.__aexit__(kind, error, trace)

    async def ask_all(self) -> None:
        """Ask every worker that is up where it publishes: models can then be loaded in their workers' own blocks."""
        await asyncio.gather(*(self._ask(worker) for worker in self._fleet.workers if worker.state is State.READY))

    async def settled(self) -> None:
        """Follow from now on, and wait a little until what was missed is known."""
        self._look()
        self._looking = self._supervisor.start("events", self._keep_looking)
        waits = [each.following.caught_up() for each in self._followed.values() if each.following is not None]
        try:
            async with asyncio.timeout(SETTLED_SECONDS):
                await asyncio.gather(*waits)
        except TimeoutError:
            log.info("some workers have not said yet what they hold")
        self._look()

    # Looking

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - whoever stops looking goes by what may no longer be so
                tell_fault(log, error, "while following KV events")

    def _look(self) -> None:
        for worker in self._fleet.workers:
            self._look_at(worker)

    def _look_at(self, worker: Worker) -> None:
        followed = self._followed.get(worker.name)
        if followed is None:
            return
        if followed.sources is None and followed.asking is None and self._may_ask(worker, followed):
            followed.asking = asyncio.create_task(self._ask(worker), name=f"ask {worker.name} for its events")
        self._keep_up(worker, followed)
        worker.events = self._doubt(followed)
        incomplete = worker.events == INCOMPLETE and followed.following is not None
        worker.lacks = followed.following.lacks if incomplete and followed.following else None
        for model, knowledge in followed.following.knowledge.items() if followed.following else ():
            knowledge.trusted, knowledge.sound = worker.events is None, worker.events == INCOMPLETE
            self._serving.router(model).follow(worker.name, knowledge)

    def _may_ask(self, worker: Worker, followed: _Followed) -> bool:
        return worker.state is State.READY and followed.settings is not None and self._clock() >= followed.ask_at

    def _keep_up(self, worker: Worker, followed: _Followed) -> None:
        """Follow for the models that the worker serves now, in their routing blocks of now."""
        if followed.following is not None and followed.following.broken:
            self._stop(worker.name, followed)
            followed.sources, followed.ask_at = None, self._clock() + ASK_AGAIN_SECONDS
        settings, sources, following = followed.settings, followed.sources, followed.following
        blocks = {model: block for model, block in self._serving.readable().items() if worker.serves(model)}
        if not sources or settings is None or (following is not None and following.blocks == blocks):
            if following is not None and following.block_tokens is not None:
                self._publishes(worker, following.block_tokens)
            return
        self._stop(worker.name, followed)
        if blocks and (sockets := self._opened()) is not None:
            followed.following = Following(
                sources, blocks, settings, sockets, self._clock, self._turns, lambda: self._reconsider(worker)
            )
            followed.following.start(worker.name)

    def _doubt(self, followed: _Followed) -> str | None:
        """Why the worker's cache is only believed; None where it is known."""
        if followed.settings is None:
            return OFF
        if self._no_zmq:
            return NO_ZMQ
        if followed.following is not None:
            return followed.following.doubt()
        if followed.sources is None:
            return followed.unusable or NOT_ASKED
        return NO_MODEL if followed.sources else NO_EVENTS

    def _reconsider(self, worker: Worker) -> None:
        """What was known of the worker was cleared: belief may be better from this moment on."""
        asyncio.get_running_loop().call_soon(self._look_at, worker)

    # Asking

    async def _ask(self, worker: Worker) -> None:
        followed = self._followed.get(worker.name)
        if followed is None or followed.settings is None:
            return
        try:
            if followed.settings.endpoint is not None:
                followed.sources = configured_sources(followed.settings, worker.backend.address.host)
            else:
                followed.sources = await self._finder.find(worker)
        except NotAsked:
            followed.ask_at = self._clock() + ASK_AGAIN_SECONDS
        except SourceError as error:
            followed.ask_at = self._clock() + 60 * ASK_AGAIN_SECONDS
            followed.unusable = str(error)
            log.warning("KV events cannot be followed: %s", error, extra={"fields": {"worker": worker.name}})
        except Exception as error:  # noqa: BLE001 - a page that nobody has thought of stops neither start nor asking
            followed.ask_at = self._clock() + 60 * ASK_AGAIN_SECONDS
            tell_fault(log, error, "while following KV events")
        else:
            self._found(worker, followed.sources)
        finally:
            followed.asking = None

    def _found(self, worker: Worker, sources: Sequence[Source]) -> None:
        if not sources:
            return
        log.info("worker publishes KV events", extra={"fields": {"worker": worker.name, "streams": len(sources)}})
        told = next((source.block_tokens for source in sources if source.block_tokens), None)
        said = worker.figures.block_tokens if worker.figures is not None else None
        if self._opened() is not None and (told or said):
            self._publishes(worker, told or said)

    def _publishes(self, worker: Worker, block_tokens: int | None) -> None:
        """The worker's own block: its models are hashed in it from now on, where that can be."""
        if worker.event_block_tokens != block_tokens:
            worker.event_block_tokens = block_tokens
            self._serving.reconsider(worker)
            if self._looking is not None:
                self._keep(asyncio.create_task(self._serving.load_all(), name="load in other blocks"))

    def _opened(self) -> Sockets | None:
        if self._sockets is None and not self._no_zmq:
            zmq = load_zmq()
            self._no_zmq = zmq is None
            self._sockets = Sockets(zmq) if zmq is not None else None
        return self._sockets

    # The fleet

    def configure(self, models: Mapping[str, Model]) -> None:
        """Take in the models' settings anew, for workers that join from now on."""
        self._models = models

    def _settings(self, worker: Worker) -> EventSettings | None:
        said = (self._models[name].events for name in sorted(worker.backend.models) if name in self._models)
        chosen = next((each for each in said if each not in AUTOMATIC), "auto")
        if isinstance(chosen, EventSettings):
            return chosen
        return EventSettings() if chosen == "auto" else None

    def _fleet_changed(self, change: Change) -> None:
        worker = change.worker
        if change.kind is ChangeKind.JOINED:
            self._followed.setdefault(worker.name, _Followed(self._settings(worker)))
        elif change.kind is ChangeKind.LEFT:
            self._drop(worker.name)
            self._counts.left(worker.name)
        elif change.kind is ChangeKind.RESTARTED and worker.name in self._followed:
            self._drop(worker.name)
            worker.events, worker.lacks = NOT_ASKED, None
            self._followed[worker.name] = _Followed(self._settings(worker))

    def _drop(self, name: str) -> None:
        followed = self._followed.pop(name, None)
        if followed is not None:
            if followed.asking is not None:
                followed.asking.cancel()
            self._stop(name, followed)

    def _stop(self, name: str, followed: _Followed) -> None:
        following, followed.following = followed.following, None
        if following is None:
            return
        self._counts.stopped(following)
        following.stop()
        for model in following.knowledge:
            if (router := self._serving.routers.get(model)) is not None:
                router.follow(name, None)
        self._keep(asyncio.create_task(following.stopped(), name=f"end of the events of {name}"))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _count(self) -> None:
        for worker in self._fleet.workers:
            followed = self._followed.get(worker.name)
            self._counts.read(worker.name, followed.following if followed else None, known=worker.events is None)
