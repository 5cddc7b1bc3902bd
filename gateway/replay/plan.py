"""Which replays answer a question: the pace that a load means, the policies asked for, and what a picture needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gateway.replay.desk import Job, Result
from router.replay.core import Trace

BASELINES = ("round_robin", "least_loaded")
"""What a plain balancer would do: what is saved is told against these."""

SWEEP_LOADS = (0.5, 0.7, 0.9, 1.0, 1.1)
SWEEP_MULTIPLES = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Of a trace's own pace, where loads are not relative to what is sustained."""

SWEEP_CACHES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the cache size that was asked for."""

Progress = Callable[[str], None]
RunJobs = Callable[[Sequence[Job]], Iterator[tuple[Job, Result]]]
"""Does jobs, and gives each with its result as soon as it is there."""


class Pace(NamedTuple):
    """How a trace's times are taken.

    `load` is relative to `sustained_per_second` requests; where that is None, to the trace's own pace. `time_scale` is
    what times are multiplied by.
    """

    load: float
    time_scale: float
    sustained_per_second: float | None = None

    def at(self, load: float) -> Pace:
        """The same trace at another load."""
        return self._replace(load=load, time_scale=self.time_scale * self.load / load)


class Points(NamedTuple):
    """What a sweep found: for each policy, results by load and by cache blocks."""

    by_load: dict[str, dict[float, Result]]
    by_cache: dict[str, dict[int, Result]]


class Plan:
    """Runs the replays of one trace, each once, however often it is asked for; tells `progress` of each."""

    def __init__(self, trace: Trace, run: RunJobs, progress: Progress) -> None:
        self._trace = trace
        self._run_jobs = run
        self._progress = progress
        self._done: dict[Job, Result] = {}

    def pace(self, load: float, cache_blocks: int) -> Pace:
        """The pace of an open trace at `load` times what least_loaded sustains with this cache when flooded."""
        job = Job(None, cache_blocks)
        self._run([job])
        sustained = self._done[job].sustained_per_second
        return Pace(load, own_requests_per_second(self._trace) / (load * sustained), sustained)

    def policies(self, names: Sequence[str], pace: Pace, cache_blocks: int) -> dict[str, Result]:
        """Every policy at one pace and cache size."""
        jobs = {name: Job(name, cache_blocks, pace.time_scale) for name in names}
        self._run(jobs.values())
        return {name: self._done[job] for name, job in jobs.items()}

    def sweep(self, names: Sequence[str], pace: Pace, cache_blocks: int) -> Points:
        """Over loads with the given cache, and over cache sizes at the given pace: the same traffic, other caches."""
        relative = pace.sustained_per_second is not None
        multiples = [pace.load * times for times in SWEEP_MULTIPLES]
        loads = sorted({*(SWEEP_LOADS if relative else multiples), pace.load})
        caches = sorted({max(1, round(cache_blocks * times)) for times in SWEEP_CACHES})
        by_load = {(name, load): Job(name, cache_blocks, pace.at(load).time_scale) for name in names for load in loads}
        by_cache = {(name, cache): Job(name, cache, pace.time_scale) for name in names for cache in caches}
        self._run([*by_load.values(), *by_cache.values()])
        return Points(
            {name: {load: self._done[by_load[name, load]] for load in loads} for name in names},
            {name: {cache: self._done[by_cache[name, cache]] for cache in caches} for name in names},
        )

    def _run(self, jobs: Iterable[Job]) -> None:
        missing = [job for job in dict.fromkeys(jobs) if job not in self._done]
        for count, (job, result) in enumerate(self._run_jobs(missing), 1):
            self._done[job] = result
            self._progress(f"{count} of {len(missing)}: {job}")


def own_requests_per_second(trace: Trace) -> float:
    """The pace at which a trace was recorded; 0 where it takes no time."""
    span_seconds = trace.requests[-1].at_seconds if trace.requests else 0.0
    return len(trace.requests) / span_seconds if span_seconds else 0.0
