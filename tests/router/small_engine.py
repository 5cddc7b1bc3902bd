"""A small fleet in simulated time: prefill first come first served, an exact LRU per worker, decode at a fixed pace."""

from __future__ import annotations

import heapq
import statistics
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from router.core import FleetView, Prompt
from router.directory import Directory
from router.router import Router


@dataclass(frozen=True)
class Request:
    """One request of a load; `at` (seconds) is ignored where a number of clients drives the load."""

    prompt: Prompt
    at: float = 0.0
    output_tokens: int = 30
    tenant: str = ""


@dataclass
class Run:
    """What came of a load: by request its worker, time to first token (s) and cached tokens; by worker busy seconds."""

    workers: list[str] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)
    cached: list[int] = field(default_factory=list)
    busy: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    last_first_token: float = 0.0

    @property
    def mean_ttft(self) -> float:
        return statistics.mean(self.ttft)

    @property
    def hit_rate(self) -> float:
        return sum(self.cached) / self.tokens

    @property
    def requests(self) -> Counter[str]:
        return Counter(self.workers)

    def requests_max_over_mean(self, workers: int) -> float:
        return max(self.requests.values()) / (len(self.workers) / workers)


class SmallFleet:
    """Workers of equal speed behind one router."""

    def __init__(
        self,
        router: Router,
        fleet: FleetView,
        cache_blocks: int,
        *,
        rate: float = 8000.0,
        fixed: float = 0.02,
        per_output_token: float = 0.03,
        shared_cache: bool = False,
    ) -> None:
        names = [view.name for view in fleet.workers]
        self.router, self.fleet = router, fleet
        self.rate, self.fixed, self.per_output_token = rate, fixed, per_output_token
        one = Directory(cache_blocks * len(names))
        self.caches = {name: one if shared_cache else Directory(cache_blocks) for name in names}
        self.queues: dict[str, deque[int]] = {name: deque() for name in names}
        self.serving: dict[str, int | None] = dict.fromkeys(names)
        self.events: list[tuple[float, int, str, int]] = []
        self.order = count()

    def run(self, load: Sequence[Request], clients: int | None = None) -> Run:
        """Drive the load, open loop at its times or closed loop by so many clients."""
        self.load, self.clients = load, clients
        size = len(load)
        self.result = Run([""] * size, [0.0] * size, [0] * size, tokens=sum(one.prompt.tokens for one in load))
        self.sent_at = [0.0] * size
        self.next_request = count(clients or size)
        for number in range(min(size, clients or size)):
            self._later(0.0 if clients else load[number].at, "arrive", number)
        while self.events:
            now, _, kind, number = heapq.heappop(self.events)
            getattr(self, f"_{kind}")(number, now)
        return self.result

    def _later(self, at: float, kind: str, number: int) -> None:
        heapq.heappush(self.events, (at, next(self.order), kind, number))

    def _arrive(self, number: int, now: float) -> None:
        request = self.load[number]
        placement = self.router.place(request.prompt, self.fleet, now, request_id=str(number), tenant=request.tenant)
        self.result.workers[number], self.sent_at[number] = placement.worker, now
        self.queues[placement.worker].append(number)
        self._start(placement.worker, now)

    def _start(self, worker: str, now: float) -> None:
        if self.serving[worker] is not None or not self.queues[worker]:
            return
        number = self.serving[worker] = self.queues[worker].popleft()
        prompt = self.load[number].prompt
        held = self.caches[worker].match(prompt.exact_blocks)
        self.result.cached[number] = min(held * prompt.block_tokens, prompt.tokens - 1)
        seconds = self.fixed + (prompt.tokens - self.result.cached[number]) / self.rate
        self.result.busy[worker] += seconds
        self._later(now + seconds, "first_token", number)

    def _first_token(self, number: int, now: float) -> None:
        worker, request = self.result.workers[number], self.load[number]
        self.caches[worker].insert(request.prompt.exact_blocks)
        self.result.ttft[number] = now - self.sent_at[number]
        self.result.last_first_token = now
        self.serving[worker] = None
        self.router.first_token(str(number), now)
        self._later(now + request.output_tokens * self.per_output_token, "end", number)
        self._start(worker, now)

    def _end(self, number: int, now: float) -> None:
        request = self.load[number]
        self.router.finished(
            str(number),
            now,
            reported_cached_tokens=self.result.cached[number],
            prompt_tokens=request.prompt.tokens,
            output_tokens=request.output_tokens,
        )
        following = next(self.next_request) if self.clients else len(self.load)
        if following < len(self.load):
            self._later(now, "arrive", following)
