"""What a replay is judged by: hit rate, times to first token and to the end, how even the work was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from router.replay.core import Replayed, Trace


class Figures(NamedTuple):
    """Figures of one replay; seconds are per request, from its sending.

    `token_hit_rate` is the part of all prompt tokens that was found cached. The two `max_over_mean` compare workers:
    busy seconds, and requests. `slo_share` is the part of requests whose first token came in time.
    `requests_per_second` counts to the last first token.
    """

    token_hit_rate: float
    ttft_mean_seconds: float
    ttft_p50_seconds: float
    ttft_p90_seconds: float
    ttft_p99_seconds: float
    total_mean_seconds: float
    busy_max_over_mean: float
    requests_max_over_mean: float
    slo_share: float
    requests_per_second: float


def figures(trace: Trace, replayed: Replayed, slo_seconds: float = 5.0) -> Figures:
    """The figures of one replay; ValueError for a trace without requests."""
    outcomes = replayed.outcomes
    if not outcomes:
        raise ValueError(f"trace {trace.name!r} has no requests, so there is nothing to show")
    ttft = sorted([one.ttft_seconds for one in outcomes])
    by_worker = Counter([one.worker for one in outcomes])
    last = max([one.sent_at_seconds + one.ttft_seconds for one in outcomes])
    return Figures(
        token_hit_rate=sum([one.cached_tokens for one in outcomes])
        / sum([request.prompt.tokens for request in trace.requests]),
        ttft_mean_seconds=sum(ttft) / len(ttft),
        ttft_p50_seconds=_quantile(ttft, 0.5),
        ttft_p90_seconds=_quantile(ttft, 0.9),
        ttft_p99_seconds=_quantile(ttft, 0.99),
        total_mean_seconds=sum([one.total_seconds for one in outcomes]) / len(outcomes),
        busy_max_over_mean=_max_over_mean(replayed.busy_seconds),
        requests_max_over_mean=_max_over_mean([by_worker[number] for number in range(len(replayed.busy_seconds))]),
        slo_share=sum([seconds <= slo_seconds for seconds in ttft]) / len(ttft),
        requests_per_second=len(outcomes) / last,
    )


def _quantile(ascending: Sequence[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def _max_over_mean(values: Sequence[float]) -> float:
    return max(values) * len(values) / sum(values)
