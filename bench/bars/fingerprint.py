"""What the simulator does, as one word: a faster simulator that does the same leaves all kept figures valid."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from xxhash import xxh3_128

from bench.bars.cells import trace_of
from router.replay.core import EngineSettings, Trace
from router.replay.oracle import LeastRequests, LeastWork, Oracle
from router.replay.simulate import replay
from router.replay.traces import first_requests

REQUESTS = 800
CACHE_BLOCKS = 200
SESSIONS = 60
TIME_SCALE = 0.5
"""More than is sustained, so that queues matter."""


@cache
def simulator_fingerprint() -> str:
    """A hash over what becomes of some requests: both engines, open and closed loop, one cache and eight."""
    digest = xxh3_128()
    trace = first_requests(trace_of("synthetic"), REQUESTS)
    for settings in (EngineSettings(cache_blocks=CACHE_BLOCKS), EngineSettings(cache_blocks=CACHE_BLOCKS, kind="B")):
        for chooser, each in ((LeastRequests(), trace), (Oracle(), trace), (Oracle(), _in_sessions(trace))):
            _add(digest, each, chooser, settings)
        _add(digest, trace, LeastWork(), settings, shared_cache=True)
    return digest.hexdigest()


def _add(
    digest: xxh3_128,
    trace: Trace,
    chooser: LeastRequests | Oracle | LeastWork,
    settings: EngineSettings,
    *,
    shared_cache: bool = False,
) -> None:
    replayed = replay(trace, chooser, settings, time_scale=TIME_SCALE, shared_cache=shared_cache)
    for one in replayed.outcomes:
        figures = (one.worker, one.cached_tokens, round(one.ttft_seconds, 4), round(one.total_seconds, 4))
        digest.update(repr(figures).encode())


def _in_sessions(trace: Trace) -> Trace:
    requests = [each._replace(session=each.number % SESSIONS, think_seconds=1.0) for each in trace.requests]
    return replace(trace, requests=requests, closed_loop=True)
