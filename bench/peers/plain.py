"""Balancers that know nothing of prefixes: round robin, random, fewest requests, the better of two."""

from __future__ import annotations

from bench.peers.peer import Peer
from router.replay.core import EngineSettings, TraceRequest, Truth


class RoundRobin(Peer):
    """Each worker in its turn."""

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._turn = -1

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """The next one."""
        self._turn += 1
        return truth.present[self._turn % len(truth.present)]


class RandomWorker(Peer):
    """Any worker; also what a ring becomes whose key is a request id."""

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """By lot."""
        return self.random.choice(truth.present)


class LeastRequests(Peer):
    """The worker with the fewest requests in flight (KubeAI's default, and most balancers')."""

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """The least busy."""
        return self.least_busy(truth.present)


class PowerOfTwo(Peer):
    """The less busy of two different workers drawn by lot."""

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """The better of two."""
        return self.least_busy(self.random.sample(truth.present, min(2, len(truth.present))))
