"""The replay: a trace's requests, one after the other, over simulated workers that a chooser picks from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from router.core import Prompt
from router.replay.core import (
    Chooser,
    Churn,
    EngineKind,
    EngineSettings,
    Outcome,
    Probing,
    Replayed,
    Trace,
    TraceRequest,
)
from router.replay.engine_a import PrefillThenDecode
from router.replay.engine_b import ContinuousBatching
from router.replay.worker import Job, Warmth, Worker

_ENGINES: Mapping[EngineKind, type[Worker]] = {"A": PrefillThenDecode, "B": ContinuousBatching}


def replay(
    trace: Trace,
    chooser: Chooser,
    settings: EngineSettings,
    *,
    time_scale: float = 1.0,
    churn: Sequence[Churn] = (),
    shared_cache: bool = False,
) -> Replayed:
    """What becomes of every request of `trace`.

    `time_scale` multiplies the times of arrival (of first arrivals, in a closed loop); 0 sends all at once.
    `shared_cache` gives all workers one cache of the size of all (the ideal). Raises ValueError for a chooser that
    picks a worker that is not present, and for churn that does not add up.
    """
    return _Replay(trace, chooser, settings, shared_cache=shared_cache).run(time_scale, churn)


class _Fleet:
    """The workers by number; what of them a chooser may see."""

    def __init__(self, settings: EngineSettings, workers: dict[int, Worker]) -> None:
        self.settings = settings
        self.workers = workers
        self.present: list[int] = sorted(workers)

    def in_flight(self, worker: int) -> int:
        return self.workers[worker].in_flight

    def waiting(self, worker: int) -> int:
        return len(self.workers[worker].queue)

    def active_blocks(self, worker: int) -> int:
        return self.workers[worker].active_blocks

    def cached_tokens(self, worker: int, prompt: Prompt) -> int:
        return self.workers[worker].cached_tokens(prompt)

    def expected_tokens(self, worker: int, prompt: Prompt) -> int:
        return self.workers[worker].expected_tokens(prompt)

    def work_seconds(self, worker: int, now: float) -> float:
        return self.workers[worker].work_seconds(now)


class _Replay:
    """One run: the agenda of what happens when, in order of time and then of planning."""

    def __init__(self, trace: Trace, chooser: Chooser, settings: EngineSettings, *, shared_cache: bool) -> None:
        self.trace, self.chooser, self.settings = trace, chooser, settings
        self._agenda: list[tuple[float, int, Callable[[Any, float], None], Any]] = []
        self._planned = 0
        self._shared = Warmth(settings.cache_blocks * settings.workers, shared=True) if shared_cache else None
        self._ever: list[tuple[int, Worker]] = []
        self.fleet = _Fleet(settings, {number: self._worker(number) for number in range(settings.workers)})
        self._following = _following(trace) if trace.closed_loop else {}
        self._outcomes: dict[int, Outcome] = {}

    def run(self, time_scale: float, churn: Sequence[Churn]) -> Replayed:
        """Send everything and see it through."""
        later_ones = set(self._following.values())
        for change in churn:
            self.later(change.at_seconds, self._change, change)
        for request in self.trace.requests:
            if request.number not in later_ones:
                self.later(request.at_seconds * time_scale, self._arrive, request)
        if isinstance(self.chooser, Probing):
            self.later(0.0, self._probe, self.chooser)
        agenda, now = self._agenda, 0.0
        while agenda:
            now, _, action, about = heappop(agenda)
            action(about, now)
        busy = [0.0] * (1 + max(number for number, _ in self._ever))
        for number, worker in self._ever:
            worker.check_integrity()
            busy[number] += worker.busy_seconds
        outcomes = [self._outcomes[request.number] for request in self.trace.requests]
        end = max((one.sent_at_seconds + one.total_seconds for one in outcomes), default=0.0)
        return Replayed(outcomes, busy, end)

    def later(self, at: float, action: Callable[[Any, float], None], about: Any) -> None:
        """Call `action(about, at)` when it is that late."""
        self._planned += 1
        heappush(self._agenda, (at, self._planned, action, about))

    def first_token(self, job: Job, now: float) -> None:
        """An answer began."""
        self.chooser.first_token(job.request, now)

    def ended(self, job: Job, now: float) -> None:
        """An answer ended: its session thinks, and goes on."""
        request, sent_at = job.request, job.sent_at
        self._outcomes[request.number] = Outcome(
            request.number, job.worker, sent_at, job.first_token_at - sent_at, now - sent_at, job.cached_tokens
        )
        self.chooser.finished(request, now, job.cached_tokens)
        following = self._following.get(request.number)
        if following is not None:
            following_request = self.trace.requests[following]
            self.later(now + following_request.think_seconds, self._arrive, following_request)

    def _arrive(self, request: TraceRequest, now: float) -> None:
        number = self.chooser.choose(request, now, self.fleet)
        if number not in self.fleet.present:
            raise ValueError(f"request {request.number} was given to worker {number}, which is not present")
        self.fleet.workers[number].send(Job(request, number, now), now)

    def _probe(self, prober: Probing, now: float) -> None:
        prober.probed(now, self.fleet)
        if self._agenda:
            self.later(now + prober.probe_seconds, self._probe, prober)

    def _change(self, change: Churn, now: float) -> None:
        present = self.fleet.present
        if change.joins == (change.worker in present):
            raise ValueError(f"worker {change.worker} cannot {'join' if change.joins else 'leave'} at {now} s")
        if change.joins:
            self.fleet.workers[change.worker] = self._worker(change.worker)
            self.fleet.present = sorted([*present, change.worker])
            self.chooser.joined(change.worker, now)
        else:
            self.fleet.present = [number for number in present if number != change.worker]
            self.chooser.left(change.worker, now)

    def _worker(self, number: int) -> Worker:
        warmth = self._shared or Warmth(self.settings.cache_blocks)
        worker = _ENGINES[self.settings.kind](self.settings, warmth, self)
        self._ever.append((number, worker))
        return worker


def _following(trace: Trace) -> dict[int, int]:
    """In a closed loop: which request of its session comes after each."""
    following: dict[int, int] = {}
    latest: dict[int, int] = {}
    for request in trace.requests:
        if request.session in latest:
            following[latest[request.session]] = request.number
        latest[request.session] = request.number
    return following
