"""What a router tells about itself: frozen snapshots for metrics, the page and `explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from router.core import Placement
from router.worker_state import InFlight, WorkerState


class PredictionError(NamedTuple):
    """One answer's prediction against the worker's word, in tokens and in routing blocks (positive: too much).

    `known` says that it came from the worker's events, and not from belief.
    """

    worker: str
    predicted_cached_tokens: int
    reported_cached_tokens: int
    error_blocks: float
    known: bool = False


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """One worker as the router sees it; evictions are of believed blocks, counted since the worker is known.

    `known_blocks` are the worker's own, as told by its events, and `known` says that placement goes by them.
    `observations` are of this worker's own prefill rate.
    """

    worker: str
    directory_blocks: int
    directory_bound_blocks: int
    directory_evicted_blocks: int
    known: bool
    known_blocks: int
    requests_in_flight: int
    context_tokens: int
    waiting_requests: int
    wait_seconds: float
    prefill_tokens_per_second: float
    prefill_fixed_seconds: float
    observations: int


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """One model's router at one moment.

    `utilisation` is ρ̂ (0 … 0.99), `price` is α. `spread_keys` have more than one home. `placements` counts by reason
    since the start, `placed` all that found a worker, `placed_at_home` those of them that went home. The three
    prediction sums are over all answers that reported cached tokens.
    """

    workers: tuple[WorkerStatistics, ...]
    utilisation: float
    price: float
    expected_output_tokens: float
    in_flight: int
    ring_workers: int
    key_blocks_counted: int
    spread_keys: int
    placements: Mapping[str, int]
    placed: int
    placed_at_home: int
    predictions: int
    predicted_cached_tokens: int
    reported_cached_tokens: int

    @property
    def share_at_home(self) -> float:
        """The share of placements that went to the ring's home, 0 … 1; 1 before the first."""
        return self.placed_at_home / self.placed if self.placed else 1.0


class Tally:
    """Counters over a router's life."""

    __slots__ = ("at_home", "placements", "predicted_tokens", "predictions", "reasons", "reported_tokens")

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.placements = 0
        self.at_home = 0
        self.predictions = 0
        self.predicted_tokens = 0
        self.reported_tokens = 0

    def placed(self, placement: Placement) -> None:
        """One answer of `place`."""
        self.reasons[placement.reason] += 1
        self.placements += placement.worker is not None
        self.at_home += placement.at_home

    def compared(self, flight: InFlight, reported_cached_tokens: int) -> PredictionError:
        """One belief met the worker's word."""
        predicted = flight.predicted_cached_tokens
        self.predictions += 1
        self.predicted_tokens += predicted
        self.reported_tokens += reported_cached_tokens
        error_blocks = (predicted - reported_cached_tokens) / flight.block_tokens
        return PredictionError(flight.worker, predicted, reported_cached_tokens, error_blocks, flight.known)


def worker_statistics(state: WorkerState, now: float) -> WorkerStatistics:
    """One worker's figures at `now`."""
    return WorkerStatistics(
        worker=state.name,
        directory_blocks=len(state.directory),
        directory_bound_blocks=state.directory.bound_blocks,
        directory_evicted_blocks=state.directory.evicted_blocks,
        known=state.known,
        known_blocks=0 if state.knowledge is None else len(state.knowledge),
        requests_in_flight=state.requests,
        context_tokens=state.context_tokens,
        waiting_requests=len(state.queue),
        wait_seconds=state.queue.wait(now),
        prefill_tokens_per_second=1.0 / state.rates.seconds_per_token,
        prefill_fixed_seconds=state.rates.fixed_seconds,
        observations=state.rates.prefill.observations,
    )
