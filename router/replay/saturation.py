"""How much traffic a fleet sustains, so that a load can be given relative to it."""

from __future__ import annotations

from dataclasses import replace

from router.replay.core import EngineSettings, Trace
from router.replay.figures import figures
from router.replay.oracle import LeastRequests
from router.replay.simulate import replay

FLOODS = 3
"""The workers do not run dry at once, so one flood may be off by 3 %."""


def sustained_requests_per_second(trace: Trace, settings: EngineSettings) -> float:
    """What fewest requests in flight serves of `trace` when all of it comes at once: the mean of three draws."""
    flood = replace(trace, closed_loop=False)
    return sum([_flooded(flood, settings, seed) for seed in range(1, FLOODS + 1)]) / FLOODS


def _flooded(flood: Trace, settings: EngineSettings, seed: int) -> float:
    """Requests per second up to the last prefill; up to the last answer's end, where decoding is work too."""
    replayed = replay(flood, LeastRequests(seed), settings, time_scale=0.0)
    if settings.kind == "B":
        return len(flood.requests) / replayed.end_seconds
    return figures(flood, replayed).requests_per_second
