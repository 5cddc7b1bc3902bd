"""What all peers share: one gateway that counts what it sent, and breaks ties by lot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random

from router.replay.core import EngineSettings, TraceRequest, Truth

MANY_WORKERS = 256


class Peer:
    """One gateway of a peer. A subclass says `pick`; what a policy books and learns goes into the other hooks.

    `in_flight` counts the requests that this gateway sent and that have not ended, by worker; it is fresh, as the
    routers' own counters are.
    """

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        self.settings = settings
        self.random = Random(seed)
        self.in_flight = [0] * MANY_WORKERS
        self._sent: dict[int, int] = {}

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The worker that this policy sends the request to, and what the policy remembers of that."""
        raise NotImplementedError

    def started(self, request: TraceRequest, worker: int, now: float) -> None:
        """The first token came from `worker`."""

    def ended(self, request: TraceRequest, worker: int, now: float) -> None:
        """The answer of `worker` ended; it is no longer counted in flight."""

    def choose(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """Pick, and count."""
        worker = self.pick(request, now, truth)
        self.in_flight[worker] += 1
        self._sent[request.number] = worker
        return worker

    def first_token(self, request: TraceRequest, now: float) -> None:
        """Hand on whom it came from."""
        self.started(request, self._sent[request.number], now)

    def finished(self, request: TraceRequest, now: float, cached_tokens: int) -> None:  # noqa: ARG002
        """Count it out; no peer learns from the usage of an answer."""
        worker = self._sent.pop(request.number)
        self.in_flight[worker] -= 1
        self.ended(request, worker, now)

    def joined(self, worker: int, now: float) -> None:
        """A newcomer is in `truth.present`; most peers need no more."""

    def left(self, worker: int, now: float) -> None:
        """Whoever leaves is not in `truth.present`; most peers need no more."""

    def least(self, workers: Iterable[int], cost: Callable[[int], float]) -> int:
        """The worker that costs least, by lot among equals."""
        best: list[int] = []
        lowest = float("inf")
        for worker in workers:
            here = cost(worker)
            if here < lowest:
                lowest, best = here, [worker]
            elif here == lowest:
                best.append(worker)
        return best[0] if len(best) == 1 else self.random.choice(best)

    def least_busy(self, workers: Iterable[int]) -> int:
        """The worker with the fewest requests in flight, by lot among equals."""
        return self.least(workers, self.in_flight.__getitem__)

    def in_flight_together(self, workers: Sequence[int]) -> int:
        """Requests in flight at all of them."""
        return sum(self.in_flight[worker] for worker in workers)
