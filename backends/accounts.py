"""What the engine tells of itself: gauges and counters, one request's account, and who wants to hear of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from backends.partitions import PartitionOccupancy


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine's gauges now and its counters since start.

    `waiting` counts all that do not run, `deferred` those of them that wait for blocks which somebody else computes or
    brings, not for room. Prefix queries and hits are in tokens and leave out lookups repeated after a preemption or by
    siblings. External queries and hits are what the tiers were asked for beyond that, and had;
    `external_hits_by_source` splits the hits by tier. `recent_hit_rate` is 0..1 over the last 1,000 requests.
    `kv_usage` is 0..1 of the usable blocks.
    `prompt_tokens` counts whole prompts when their first token comes (once for all answers to it),
    `cached_prompt_tokens` the part of them that was not computed. `occupancy` has the pool's blocks by partition.
    """

    running: int
    waiting: int
    num_blocks: int
    free_blocks: int
    kv_usage: float
    prefix_queries: int
    prefix_hits: int
    recent_hit_rate: float
    prompt_tokens: int
    cached_prompt_tokens: int
    generation_tokens: int
    preemptions: int
    deferred: int = 0
    external_queries: int = 0
    external_hits: int = 0
    external_hits_by_source: tuple[tuple[str, int], ...] = ()
    occupancy: tuple[PartitionOccupancy, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """One answer's account, in tokens and seconds, told to the observer once.

    queue = arrival to first scheduled, prefill = to first token, decode = first to last token, inference = prefill +
    decode, e2e = arrival to last token. Phases never reached are 0.
    """

    request_id: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    max_tokens: int
    n: int
    preemptions: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    e2e_seconds: float

    @property
    def inference_seconds(self) -> float:
        """From first scheduled to last token."""
        return self.prefill_seconds + self.decode_seconds


class Observer(Protocol):
    """Who wants to know about timing; called inside the step, so it must be quick and never raise."""

    def first_token(self, request_id: str, seconds: float) -> None:
        """Seconds from arrival to the first token."""

    def next_token(self, request_id: str, seconds: float) -> None:
        """Seconds since the answer's previous token."""

    def finished(self, request: FinishedRequest) -> None:
        """An answer ended, for whatever reason."""

    def stepped(self, scheduled_tokens: int, preempted: int) -> None:
        """A step ran: tokens in its batch, sequences preempted for it."""


class NoObserver:
    """Observes nothing."""

    def first_token(self, request_id: str, seconds: float) -> None:
        """Nothing."""

    def next_token(self, request_id: str, seconds: float) -> None:
        """Nothing."""

    def finished(self, request: FinishedRequest) -> None:
        """Nothing."""

    def stepped(self, scheduled_tokens: int, preempted: int) -> None:
        """Nothing."""
