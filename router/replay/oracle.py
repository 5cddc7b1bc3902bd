"""Choosers that see what no gateway sees: the oracle, the ideal's queue, and exact counts of requests in flight."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from router.replay.core import TraceRequest, Truth

_TIE = 1e-9


class AllSeeing:
    """Chooses by the truth alone; needs to be told nothing. Ties are broken at random, by the seed."""

    def __init__(self, seed: int = 1) -> None:
        self._dice = Random(seed)  # noqa: S311

    def choose(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The worker whose score is least."""
        present = truth.present
        scores = self.scores(request, now, truth, present)
        least = min(scores) + _TIE
        tied = [worker for worker, score in zip(present, scores, strict=True) if score <= least]
        return tied[0] if len(tied) == 1 else self.among(tied, request, truth)

    def scores(self, request: TraceRequest, now: float, truth: Truth, present: Sequence[int]) -> list[float]:
        """What is compared, for each of `present`."""
        raise NotImplementedError

    def among(self, tied: Sequence[int], request: TraceRequest, truth: Truth) -> int:  # noqa: ARG002
        """One of those that score the same."""
        return self._dice.choice(tied)

    def first_token(self, request: TraceRequest, now: float) -> None:
        """Nothing to learn."""

    def finished(self, request: TraceRequest, now: float, cached_tokens: int) -> None:
        """Nothing to learn."""

    def joined(self, worker: int, now: float) -> None:
        """Nothing to learn."""

    def left(self, worker: int, now: float) -> None:
        """Nothing to learn."""


class Oracle(AllSeeing):
    """Knows every cache and queue: the work ahead, and `price` times one's own; ties to the least own work."""

    def __init__(self, price: float = 2.0, seed: int = 1) -> None:
        super().__init__(seed)
        self._price = price

    def scores(self, request: TraceRequest, now: float, truth: Truth, present: Sequence[int]) -> list[float]:
        """Seconds of work ahead, own work at its price."""
        settings, price, prompt = truth.settings, self._price, request.prompt
        fixed, rate, tokens = settings.prefill_fixed_seconds, settings.prefill_tokens_per_second, prompt.tokens
        return [
            truth.work_seconds(worker, now)
            + price * (fixed + max(1, tokens - truth.expected_tokens(worker, prompt)) / rate)
            for worker in present
        ]

    def among(self, tied: Sequence[int], request: TraceRequest, truth: Truth) -> int:
        """Who has the least own work."""
        expected = [truth.expected_tokens(worker, request.prompt) for worker in tied]
        most = max(expected)
        return self._dice.choice([worker for worker, held in zip(tied, expected, strict=True) if held == most])


class LeastWork(AllSeeing):
    """Least work ahead: over one shared cache, that is the ideal."""

    def scores(self, request: TraceRequest, now: float, truth: Truth, present: Sequence[int]) -> list[float]:  # noqa: ARG002
        """Seconds of work ahead."""
        return [truth.work_seconds(worker, now) for worker in present]


class LeastRequests(AllSeeing):
    """Fewest requests in flight, counted exactly over all gateways."""

    def scores(self, request: TraceRequest, now: float, truth: Truth, present: Sequence[int]) -> list[float]:  # noqa: ARG002
        """Requests in flight."""
        return [truth.in_flight(worker) for worker in present]
