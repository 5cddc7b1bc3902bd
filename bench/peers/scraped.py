"""Signals that a router scrapes from its workers, as old as the last scrape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from router.replay.core import Truth


class Scrape(NamedTuple):
    """What one worker said: requests in flight and waiting, and the share of its cache that requests hold."""

    in_flight: int
    waiting: int
    cache_share: float


class Scraper:
    """Asks all workers again when the last answers are `every_seconds` old."""

    def __init__(self, every_seconds: float, cache_blocks: int) -> None:
        self._every_seconds = every_seconds
        self._cache_blocks = cache_blocks
        self._at_seconds = float("-inf")
        self._answers: dict[int, Scrape] = {}

    def look(self, now: float, truth: Truth) -> dict[int, Scrape]:
        """The last answers of those present."""
        if now - self._at_seconds >= self._every_seconds or self._missing(truth.present):
            self._at_seconds = now
            self._answers = {worker: self._ask(worker, truth) for worker in truth.present}
        return self._answers

    def _missing(self, present: Sequence[int]) -> bool:
        return any(worker not in self._answers for worker in present)

    def _ask(self, worker: int, truth: Truth) -> Scrape:
        share = min(1.0, truth.active_blocks(worker) / self._cache_blocks)
        return Scrape(truth.in_flight(worker), truth.waiting(worker), share)


def spread(values: Sequence[int]) -> Callable[[int], float]:
    """Where a value lies between the largest (0) and the smallest (1) of all; 1 where all are equal."""
    low, high = min(values), max(values)
    return lambda value: 1.0 if high == low else (high - value) / (high - low)
