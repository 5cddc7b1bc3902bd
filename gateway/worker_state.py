"""One worker as the gateway knows it: where it is, how it does, and the picture of it that placement sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gateway.addresses import WorkerAddress
from gateway.block_sizes import routing_block_tokens as routing_block_tokens
from gateway.ejection import EjectionRules, Fitness, Standing
from gateway.model_cards import ModelCard
from gateway.worker_metrics import WorkerFigures, hit_ratio, restarted
from router.core import Prompt, WorkerView

ANY_MODEL = "*"
"""A worker configured under this name serves whatever models it lists."""

SILENT_PROBES_TO_DOWN = 3
HIT_RATIO_WINDOW_SECONDS = 60.0


class State(Enum):
    """Whether a worker may be given requests: only READY ones are. UNKNOWN lasts until the first probe's answer."""

    UNKNOWN = "unknown"
    READY = "ready"
    EJECTED = "ejected"
    """Its probes are good, its answers were not: asked only when too few others are left."""
    DOWN = "down"


class Outcome(Enum):
    """How one attempt at a worker ended, as the data plane saw it."""

    ANSWERED = "answered"
    """It sent the head of an answer and did not break off."""
    REFUSED = "refused"
    """No connection could be made."""
    BROKE = "broke"
    """The connection ended before the answer did."""
    SILENT = "silent"
    """No byte within the timeout."""
    ERRED = "erred"
    """It answered that it failed (5xx), which may be the request's fault as well as its own."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A worker as discovery describes it; `models` are the configured names (or `*`)."""

    name: str
    address: WorkerAddress
    models: frozenset[str]
    weight: int = 1
    max_in_flight: int | None = None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ServingFacts:
    """What is known about serving one model, mostly from the configuration; None where nothing was said.

    `routing_block_tokens` is how many of the worker's tokens a routing block was measured to hold. `salts_messages`
    says that its workers heed `cache_salt` on /v1/messages.
    """

    max_in_flight: int | None = None
    prefill_tokens_per_second: float | None = None
    prefill_fixed_seconds: float | None = None
    worker_block_tokens: int | None = None
    routing_block_tokens: int | None = None
    salts_messages: bool = False


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What one round of probes found. `trouble` None means healthy, else a few words for logs and /readyz.

    `cards` and `figures` are None where that page was not asked for or could not be read; `refused` says that
    nobody listens there; `silent` that no answer came in time, which a worker at full load may do now and then;
    `hung` that nothing else comes from it either. `trial` tells how a request of our own went, where one was made.
    """

    trouble: str | None = None
    refused: bool = False
    silent: bool = False
    hung: bool = False
    trial: bool | None = None
    cards: tuple[ModelCard, ...] | None = None
    figures: WorkerFigures | None = None


class Worker:
    """The live record of one backend. Only `Fleet` changes it. `joined` says that it was ready at some time.

    `events` says why its cache is only believed, None where its KV events are gone by; `event_block_tokens` is its own
    block where it publishes some; `lacks` says of a prompt and its predicted cached tokens whether the worker should
    be asked to tell again what it holds of it. They are changed by who follows the events.

    `hung` says that it was found so by the data plane, whatever its probes say. `slow_start` makes of a bound of
    requests in flight the one that holds while it is coming back. `heard_at` (monotonic seconds) is when a request of
    ours last got a byte from it. `on_change` is called when pictures of it no longer hold.
    """

    def __init__(
        self, backend: Backend, rules: EjectionRules | None = None, on_change: Callable[[], None] | None = None
    ) -> None:
        self.backend = backend
        self._on_change = on_change
        self.standing = Standing(rules)
        self.name = backend.name
        self.api_key = backend.api_key
        self.state = State.UNKNOWN
        self.trouble: str | None = "not probed yet"
        self.draining = False
        self.joined = False
        self.in_flight = 0
        self.silent_probes = 0
        self.gone_since_ready = False
        self.hung = False
        self.slow_start: Callable[[int], int] | None = None
        self.heard_at = 0.0
        self.cards: tuple[ModelCard, ...] | None = None
        self.figures: WorkerFigures | None = None
        self.hit_ratio: float | None = None
        self.events: str | None = "not asked yet"
        self.event_block_tokens: int | None = None
        self.lacks: Callable[[Prompt, int], bool] | None = None
        self._readings: deque[tuple[float, WorkerFigures]] = deque()
        self._views: dict[str, WorkerView] = {}

    def __repr__(self) -> str:
        leaving = ", draining" if self.draining else ""
        return f"<worker {self.name}: {self.state.value}{leaving}, {self.in_flight} in flight>"

    @property
    def up(self) -> bool:
        """Whether it may be given new requests at all."""
        return self.state is State.READY and not self.draining

    @property
    def fails_by_answers(self) -> bool:
        """Whether it is out for what came of its requests and not for its probes: then an answer speaks for it."""
        return self.hung or self.state is State.EJECTED

    @property
    def fitness(self) -> Fitness:
        """What speaks against giving it a request, leaving aside what model that is of."""
        if self.state is State.EJECTED:
            return Fitness.OUT
        if self.state is not State.READY:
            return Fitness.DEAD
        return Fitness.BUSY if self.standing.busy_until is not None else Fitness.FIT

    def listed(self, model: str) -> ModelCard | None:
        """The worker's own card of a model or adapter."""
        return next((card for card in self.cards or () if card.id == model), None)

    @property
    def cache_fields(self) -> frozenset[str]:
        """The wishes for its cache that it says it understands."""
        return frozenset(field for card in self.cards or () for field in card.cache_fields)

    def configured_for(self, model: str) -> bool:
        """Whether the configuration sends this model here: by name, as any model, or as an adapter of one here."""
        models = self.backend.models
        if model in models:
            return True
        card = self.listed(model)
        return card is not None and (ANY_MODEL in models or card.parent in models)

    def serves(self, model: str) -> bool:
        """Configured for it, and the worker lists it."""
        return self.listed(model) is not None and self.configured_for(model)

    def stands_in_for(self, other: Worker) -> bool:
        """Whether it is another one that serves some model of `other`."""
        return self is not other and any(self.serves(card.id) for card in other.cards or () if other.serves(card.id))

    def view(self, model: str, facts: ServingFacts) -> WorkerView:
        """What placement sees, kept until more than its count of requests changes."""
        view = self._views.get(model)
        if view is None:
            view = self._views[model] = self._draw(model, facts)
        return view

    def changed(self) -> None:
        """Throw the pictures away; the next `view` draws anew."""
        self._views.clear()
        if self._on_change is not None:
            self._on_change()

    def count(self, requests: int) -> None:
        """So many more requests (or fewer) are in flight here: the pictures show it at once."""
        self.in_flight += requests
        for view in self._views.values():
            view.in_flight = self.in_flight

    def lost_its_cache(self, result: ProbeResult, now: float) -> bool:
        """Take in a probe's reading at `now` (monotonic seconds); True when what we believe it holds is gone.

        That is so when another process answers, when it fell asleep, or when nobody was there for a while and no
        start time vouches that it is still the same process.
        """
        before, after = self.figures, result.figures
        other_process = fell_asleep = False
        if after is not None:
            other_process = before is not None and restarted(before, after)
            fell_asleep = after.asleep and not (before is not None and before.asleep)
            self._read(after, now, afresh=other_process)
        came_back = result.trouble is None and self.gone_since_ready
        if result.trouble is None:
            self.gone_since_ready = False
        elif result.refused and self.state is State.READY:
            self.gone_since_ready = True
        return other_process or fell_asleep or (came_back and not _same_process(before, after))

    def bears_with(self, result: ProbeResult) -> bool:
        """Count silent probes; True while a ready worker may still be just busy."""
        self.silent_probes = self.silent_probes + 1 if result.silent else 0
        return (
            result.silent
            and not result.hung
            and self.state is State.READY
            and self.silent_probes < SILENT_PROBES_TO_DOWN
        )

    def unfit(self) -> str | None:
        """Why a worker that answers its probes may still not be used, or None."""
        if self.figures is not None and self.figures.asleep:
            return "asleep"
        if self.cards is None:
            return "has not listed its models yet"
        if not any(self.configured_for(card.id) for card in self.cards):
            listed = ", ".join(card.id for card in self.cards) or "no model"
            return f"serves {listed}, but is configured for {', '.join(sorted(self.backend.models))}"
        return None

    def problems(self) -> list[str]:
        """What disagrees within the record; empty when all is well."""
        wrong = []
        if self.in_flight < 0:
            wrong.append(f"{self.name} has {self.in_flight} requests in flight")
        if (self.state is State.READY) != (self.trouble is None):
            wrong.append(f"{self.name} is {self.state.value} but its trouble is {self.trouble}")
        if any(view.in_flight != self.in_flight for view in self._views.values()):
            wrong.append(f"the picture of {self.name} is stale")
        return wrong

    def _read(self, figures: WorkerFigures, now: float, *, afresh: bool) -> None:
        if afresh:
            self._readings.clear()
        self._readings.append((now, figures))
        while len(self._readings) > 2 and self._readings[1][0] <= now - HIT_RATIO_WINDOW_SECONDS:
            self._readings.popleft()
        self.figures = figures
        self.hit_ratio = hit_ratio(self._readings[0][1], figures)

    def _draw(self, model: str, facts: ServingFacts) -> WorkerView:
        waiting = self.figures.waiting if self.figures else None
        bounds = [bound for bound in (self.backend.max_in_flight, facts.max_in_flight) if bound is not None]
        return WorkerView(
            name=self.name,
            ready=self.state is State.READY and self.standing.busy_until is None and self.serves(model),
            draining=self.draining,
            in_flight=self.in_flight,
            max_in_flight=self._bound(bounds),
            cache_blocks=self._cache_blocks(facts),
            prefill_tokens_per_second=facts.prefill_tokens_per_second,
            prefill_fixed_seconds=facts.prefill_fixed_seconds,
            waiting=None if waiting is None else int(waiting),
            adapters=frozenset(card.id for card in self.cards or () if card.parent is not None),
            weight=self.backend.weight,
            joined=self.joined,
        )

    def _bound(self, bounds: Sequence[int]) -> int | None:
        """Where nobody gives a bound there is none to grow up to: then the router's own balance must do."""
        bound = min(bounds, default=None)
        return bound if bound is None or self.slow_start is None else self.slow_start(bound)

    def _cache_blocks(self, facts: ServingFacts) -> int | None:
        size_tokens = self.figures.cache_size_tokens if self.figures else None
        if size_tokens is None:
            return None
        worker_block = facts.worker_block_tokens or (self.figures.block_tokens if self.figures else None)
        return max(1, size_tokens // (facts.routing_block_tokens or routing_block_tokens(worker_block)))


def _same_process(before: WorkerFigures | None, after: WorkerFigures | None) -> bool:
    if before is None or after is None or before.start_seconds is None:
        return False
    return before.start_seconds == after.start_seconds


Facts = Mapping[str, ServingFacts]
"""Serving facts by configured model name."""
