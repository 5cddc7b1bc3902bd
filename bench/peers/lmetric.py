"""LMetric: tokens to prefill times requests there."""

from __future__ import annotations

from bench.peers.peer import Peer
from router.replay.core import EngineSettings, TraceRequest, Truth


class Lmetric(Peer):
    """Least of uncached tokens · (requests in flight + 1), from an exact index; then the least busy.

    `with_queued` adds the uncached tokens that wait there already; without, only the request's own count.
    """

    def __init__(self, settings: EngineSettings, seed: int = 1, *, with_queued: bool = False) -> None:
        super().__init__(settings, seed)
        self._with_queued = with_queued
        self._queued_tokens = [0] * len(self.in_flight)
        self._booked: dict[int, int] = {}

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """The least product."""
        prompt = request.prompt
        products = {
            worker: (self._ahead_tokens(worker) + max(1, prompt.tokens - truth.cached_tokens(worker, prompt)))
            * (self.in_flight[worker] + 1)
            for worker in truth.present
        }
        lowest = min(products.values())
        worker = self.least_busy([worker for worker in truth.present if products[worker] == lowest])
        self._booked[request.number] = max(1, prompt.tokens - truth.expected_tokens(worker, prompt))
        self._queued_tokens[worker] += self._booked[request.number]
        return worker

    def started(self, request: TraceRequest, worker: int, now: float) -> None:  # noqa: ARG002
        """Its prefill is over."""
        self._queued_tokens[worker] -= self._booked.pop(request.number)

    def _ahead_tokens(self, worker: int) -> int:
        return self._queued_tokens[worker] if self._with_queued else 0
