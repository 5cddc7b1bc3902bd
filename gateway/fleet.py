"""The live workers: who may be given a request, how many each has, and who must hear when that changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from gateway.block_sizes import known_block_tokens, routing_block_tokens
from gateway.fault_settings import Faults
from gateway.fleet_changes import Change as Change
from gateway.fleet_changes import ChangeKind as ChangeKind
from gateway.fleet_changes import Listener
from gateway.fleet_changes import UnknownWorker as UnknownWorker
from gateway.lease import Lease as Lease
from gateway.model_cards import KnownModel, ModelCard, known_models, merge_cards
from gateway.pictures import Pictures
from gateway.recovery import Recovery
from gateway.worker_state import ANY_MODEL, Backend, Facts, Outcome, ProbeResult, ServingFacts, State, Worker
from router.core import FleetView

NOTEWORTHY_CHANGE = 0.1


class Fleet:
    """All workers by name, in the order they joined.

    Not thread-safe: one event loop owns it, and nothing in here waits.
    """

    def __init__(self, facts: Facts, faults: Faults | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._facts = dict(facts)
        self._clock = clock
        self.recovery = Recovery(faults or Faults(), clock)
        self._pictures = Pictures(self.recovery)
        self._measured: dict[str, ServingFacts] = {}
        self._workers: dict[str, Worker] = {}
        self._listeners: list[Listener] = []
        self._known: dict[str, KnownModel] | None = None

    # Membership

    def on_change(self, listener: Listener) -> None:
        """Call `listener` after each change, in the order of registration."""
        self._listeners.append(listener)

    def add(self, backend: Backend) -> Worker:
        """Take a worker in; it gets requests after its first good probe. ValueError when the name is taken."""
        if backend.name in self._workers:
            raise ValueError(f"there is a worker named {backend.name} already")
        worker = self._workers[backend.name] = Worker(backend, self.recovery.rules, self._pictures.forget)
        self._tell(ChangeKind.JOINED, worker)
        return worker

    def revise(self, backend: Backend) -> None:
        """Another weight, bound or key of a worker at the same address for the same models; all else of it stays."""
        worker = self.worker(backend.name)
        worker.backend, worker.api_key = backend, backend.api_key
        worker.changed()

    def remove(self, name: str) -> None:
        """Let a worker go; requests that are there end in their own time."""
        worker = self.worker(name)
        del self._workers[name]
        self.recovery.forget(worker)
        self._tell(ChangeKind.LEFT, worker)

    def drain(self, name: str) -> None:
        """Give a worker nothing new; it ends what it has, and is nobody's home from now on."""
        worker = self.worker(name)
        if not worker.draining:
            worker.draining = True
            worker.changed()
            self._tell(ChangeKind.DRAINING, worker)

    def resume(self, name: str) -> None:
        """Undo `drain`: the worker is home again to what it was home to before."""
        worker = self.worker(name)
        if worker.draining:
            worker.draining = False
            worker.changed()
            self._tell(ChangeKind.RESUMED, worker)

    def worker(self, name: str) -> Worker:
        """The live record; `UnknownWorker` when there is none."""
        try:
            return self._workers[name]
        except KeyError:
            raise UnknownWorker(name) from None

    @property
    def workers(self) -> tuple[Worker, ...]:
        """All of them, in the order they joined."""
        return tuple(self._workers.values())

    def configure(self, facts: Facts) -> None:
        """Take in the models' settings anew; what was measured of the models is measured again."""
        self._facts, self._measured = dict(facts), {}
        for worker in self._workers.values():
            worker.changed()

    # What placement needs

    def view(self, model: str) -> FleetView:
        """The workers that this model is sent to, ready or not; empty for an unknown model.

        For an adapter they are all of its base's, those without it as not ready: both share one ring.
        """
        pictures = self._pictures
        return pictures.kept(model) or pictures.drawn(
            model, self.configured_workers(self.base_model(model)), self.facts(model)
        )

    def configured_workers(self, base: str) -> list[Worker]:
        """The workers that a base model is sent to, ready or not."""
        return [worker for worker in self._workers.values() if worker.configured_for(base)]

    def panics(self, base: str) -> bool:
        """Whether too few of a base model's workers are left, so that ejected ones are asked too."""
        return bool(self.recovery.limited) and self.recovery.choice(self.configured_workers(base)).panic

    def lease(self, name: str) -> Lease:
        """A slot at a worker, to be used with `async with`; `UnknownWorker` when it has gone."""
        return Lease(self.worker(name))

    def facts(self, model: str) -> ServingFacts:
        """What is known of serving a model; an adapter's facts are its base's."""
        base = self.base_model(model)
        return self._measured.get(base) or self._configured(base)

    def measured(self, base: str, routing_block_tokens: int) -> None:
        """Take in how many of the worker's tokens a routing block of this model really holds.

        They differ from `block_tokens` where bytes stand in for a tokeniser. Small changes are let go: each one
        changes what routers are told of the size of every cache.
        """
        known = (self._measured.get(base) or self.facts(base)).routing_block_tokens
        if known is None or abs(routing_block_tokens - known) > known * NOTEWORTHY_CHANGE:
            self._measured[base] = replace(self._configured(base), routing_block_tokens=routing_block_tokens)
            for worker in self._workers.values():
                worker.changed()

    def block_tokens(self, model: str) -> int:
        """A model's routing block: its workers' own where they publish events, else as configured, as said, or 64."""
        configured = self.facts(model).worker_block_tokens
        said = (worker.figures.block_tokens for worker in self._serving(model) if worker.figures)
        said_or_configured = configured or max((size for size in said if size), default=None)
        return known_block_tokens(worker.event_block_tokens for worker in self._serving(model)) or routing_block_tokens(
            said_or_configured
        )

    # What was heard

    def report(self, worker: Worker, outcome: Outcome) -> None:
        """Take in how an attempt at this very worker ended: a refused connection means down, a third failure out."""
        if self._workers.get(worker.name) is not worker:
            return
        standing = worker.standing
        if outcome is Outcome.ANSWERED:
            if standing.unsettled and standing.answered(self._clock()) and worker.fails_by_answers:
                self._up(worker)
        elif outcome is Outcome.ERRED:
            if standing.erred(self._clock()) and worker.state is State.READY:
                self._out(worker, State.EJECTED, "answered with errors only", outcome.value)
        elif outcome is Outcome.REFUSED:
            worker.gone_since_ready = worker.gone_since_ready or worker.state is State.READY
            self._out(worker, State.DOWN, "refused a connection", outcome.value)
        elif standing.failed(self._clock()) or (outcome is Outcome.SILENT and worker.state is State.EJECTED):
            trouble = f"{outcome.value} {standing.failures_in_a_row} times in a row"
            if outcome is Outcome.SILENT:
                # It may be at work on them still, and would be on more: not even a panic sends it any.
                worker.hung = True
                self._out(worker, State.DOWN, trouble, outcome.value)
            elif worker.state is State.READY:
                self._out(worker, State.EJECTED, trouble, outcome.value)

    def probed(self, name: str, result: ProbeResult, now: float) -> None:
        """Take in a round of probes at `now` (monotonic seconds)."""
        worker = self._workers.get(name)
        if worker is None:
            return
        worker.changed()
        if result.cards is not None:
            self._take_cards(worker, result.cards)
        if worker.lost_its_cache(result, now):
            self._tell(ChangeKind.RESTARTED, worker)
        if result.hung:
            self._hangs(worker, now)
        elif not worker.bears_with(result):
            self._judge(worker, result, now)

    def _judge(self, worker: Worker, result: ProbeResult, now: float) -> None:
        """Whether it may be used: its probes must be good, and after an ejection its trial too."""
        trouble = result.trouble or worker.unfit()
        if trouble is not None:
            self._out(worker, State.DOWN, trouble, "probe")
        elif not worker.standing.out or (result.trial is not None and worker.standing.tried(now, good=result.trial)):
            self._up(worker)
        elif worker.state is not State.EJECTED and not worker.hung:
            self._out(worker, State.EJECTED, worker.trouble or "its answers broke", "broke")

    def _hangs(self, worker: Worker, now: float) -> None:
        worker.hung = True
        if not worker.standing.out:
            worker.standing.eject(now)
        self._out(worker, State.DOWN, "hangs: no byte comes of what it was asked", "hung")

    # Models

    def models(self) -> tuple[ModelCard, ...]:
        """Every model and adapter once, in a stable order; workers that are down keep theirs on the list."""
        return merge_cards(
            [card for card in worker.cards or () if worker.configured_for(card.id)] for worker in self._workers.values()
        )

    def knows(self, model: str) -> bool:
        """Whether the model is configured or some worker listed it: an unknown one is a 404, not a 503.

        Nobody can tell while a worker that may serve any model has not listed its own: then it is not unknown.
        """
        if model in self._facts and model != ANY_MODEL:
            return True
        return model in self._known_models() or (ANY_MODEL in self._facts and self._lists_missing())

    def _lists_missing(self) -> bool:
        return any(worker.cards is None and ANY_MODEL in worker.backend.models for worker in self._workers.values())

    def card(self, model: str) -> ModelCard | None:
        """The merged card of a model, or None while no worker has listed it."""
        cards = [card for worker in self._serving(model) if (card := worker.listed(model))]
        return merge_cards([cards])[0] if cards else None

    def base_model(self, model: str) -> str:
        """The model an adapter belongs to, or the model itself."""
        known = (self._known or self._known_models()).get(model)
        return model if known is None else known.base

    def context_tokens(self, model: str) -> int | None:
        """The longest prompt plus answer that every worker of a model takes; None where nobody says.

        An adapter that gives no length of its own has its base's.
        """
        known = (self._known or self._known_models()).get(model)
        return None if known is None else known.context_tokens

    def check_integrity(self) -> None:
        """Raise AssertionError, naming the worker, when a count or a picture disagrees with the record."""
        wrong = [f"{worker.name} is filed as {name}" for name, worker in self._workers.items() if worker.name != name]
        wrong += [problem for worker in self._workers.values() for problem in worker.problems()]
        if wrong:
            raise AssertionError("; ".join(wrong))

    def _configured(self, base: str) -> ServingFacts:
        return self._facts.get(base) or self._facts.get(ANY_MODEL) or ServingFacts()

    def _known_models(self) -> dict[str, KnownModel]:
        """What the merged cards say, by model or adapter; kept until some worker's list changes."""
        if self._known is None:
            self._known = known_models(self.models())
        return self._known

    def _serving(self, model: str) -> Iterable[Worker]:
        return (worker for worker in self._workers.values() if worker.serves(model))

    def _take_cards(self, worker: Worker, cards: tuple[ModelCard, ...]) -> None:
        before = {card.id for card in worker.cards or ()}
        worker.cards, self._known = cards, None
        if before != {card.id for card in cards}:
            self._tell(ChangeKind.MODELS, worker)

    def _up(self, worker: Worker) -> None:
        worker.trouble = None
        worker.hung = False
        if worker.state is not State.READY:
            self.recovery.is_back(worker, [other for other in self._workers.values() if other.stands_in_for(worker)])
            worker.state, worker.joined = State.READY, True
            self._tell(ChangeKind.UP, worker)

    def _out(self, worker: Worker, state: State, trouble: str, reason: str) -> None:
        worker.trouble = trouble
        worker.changed()
        if worker.state is not state:
            worker.state = state
            self.recovery.is_out(worker)
            self._tell(ChangeKind.DOWN, worker, reason)

    def _tell(self, kind: ChangeKind, worker: Worker, reason: str = "") -> None:
        worker.changed()
        self._known = None
        for listener in tuple(self._listeners):
            listener(Change(kind, worker, reason))
