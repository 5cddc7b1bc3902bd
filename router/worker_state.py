"""What the router knows of one worker: its directory, its virtual queue, its rates and the requests it is serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from router.belief import Belief, Report, Verdict
from router.core import WorkerView
from router.directory import Directory
from router.learning import WorkerRates
from router.virtual_queue import VirtualQueue

_LEAST_TOKENS_FOR_A_GAP = 16
"""Shorter answers say little about the time between tokens."""


@dataclass(slots=True)
class InFlight:
    """One request between placement and end.

    `decode_context_tokens` is the worker's context when the first token came. `remote` requests were placed by
    another replica. `alone` says that nobody was waiting at the worker when it was placed, so that its time to
    first token is its own prefill and nothing else.
    """

    worker: str
    tenant: str
    prompt_tokens: int
    block_tokens: int
    predicted_cached_tokens: int
    prefill_seconds: float
    placed_at: float
    alone: bool
    remote: bool = False
    first_token_at: float | None = None
    decode_context_tokens: int = 0


class Outcome(NamedTuple):
    """How a request ended: what the worker said (None: it said nothing; cached tokens in the router's count).

    `context_tokens` is the worker's context at the end, this request's prompt included.
    """

    ended_at: float
    cached_tokens: int | None
    output_tokens: int | None
    context_tokens: int


class WorkerState:
    """Everything believed about one worker; `context_tokens` is over the `requests` in flight there."""

    __slots__ = ("belief", "context_tokens", "directory", "name", "queue", "rates", "requests", "seen_at")

    def __init__(self, name: str) -> None:
        self.name = name
        self.belief = Belief()
        self.directory = Directory(self.belief.bound_blocks)
        self.queue = VirtualQueue()
        self.rates = WorkerRates()
        self.requests = 0
        self.context_tokens = 0
        self.seen_at = 0.0

    def configure(self, view: WorkerView) -> None:
        """Take over what the worker is said to be, where that has changed; what was learned stays otherwise."""
        if view.cache_blocks != self.belief.told_blocks:
            self.belief = Belief(view.cache_blocks)
            self.directory.resize(self.belief.bound_blocks)
        if not self.rates.configured_as(view.prefill_tokens_per_second, view.prefill_fixed_seconds):
            self.rates.configure(view.prefill_tokens_per_second, view.prefill_fixed_seconds)

    def enter(self, request_id: str, flight: InFlight, now: float, *, silent: bool) -> None:
        """A request was sent here."""
        self.queue.push(request_id, flight.prefill_seconds, now, silent=silent)
        self.requests += 1
        self.context_tokens += flight.prompt_tokens

    def leave(self, request_id: str, flight: InFlight, now: float) -> None:
        """A request ended here, however it ended."""
        self.queue.remove(request_id, now)
        self.requests -= 1
        self.context_tokens -= flight.prompt_tokens

    def learn(self, flight: InFlight, outcome: Outcome) -> None:
        """Learn rates and the size of the cache from a request that was placed by this router and has ended."""
        cached = flight.predicted_cached_tokens if outcome.cached_tokens is None else outcome.cached_tokens
        if flight.alone and flight.first_token_at is not None:
            uncached = max(1, flight.prompt_tokens - cached)
            self.rates.prefill.observe(uncached, flight.first_token_at - flight.placed_at)
        if flight.first_token_at is not None and (outcome.output_tokens or 0) >= _LEAST_TOKENS_FOR_A_GAP:
            gap_seconds = (outcome.ended_at - flight.first_token_at) / ((outcome.output_tokens or 0) - 1)
            self.rates.decode.observe((flight.decode_context_tokens + outcome.context_tokens) / 2, gap_seconds)
        if outcome.cached_tokens is not None:
            self._correct(Report(flight.predicted_cached_tokens, outcome.cached_tokens, flight.block_tokens))

    def _correct(self, report: Report) -> None:
        verdict = self.belief.learn(report)
        if verdict is Verdict.CLEAR:
            self.directory.clear()
        if verdict is not Verdict.KEEP:
            self.directory.resize(self.belief.bound_blocks)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the parts are sound and no count is negative."""
        self.directory.check_integrity()
        self.queue.check_integrity()
        if self.requests < 0 or self.context_tokens < 0:
            raise AssertionError(f"worker {self.name!r} has fewer than no requests in flight")
