"""One simulated worker, whatever its engine: its queue, its cache, and what is in flight there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from router.core import Prompt
from router.replay.cache import PinnedCache
from router.replay.core import EngineSettings, TraceRequest


class Job:
    """One request on its way through a worker.

    `estimated_tokens` are the uncached tokens that it was taken to have when it came; in engine B, once it is begun,
    those that are left.
    """

    __slots__ = ("cached_tokens", "estimated_tokens", "first_token_at", "request", "sent_at", "worker")

    def __init__(self, request: TraceRequest, worker: int, sent_at: float) -> None:
        self.request = request
        self.worker = worker
        self.sent_at = sent_at
        self.first_token_at = sent_at
        self.estimated_tokens = 0
        self.cached_tokens = 0


class Host(Protocol):
    """Whoever runs the workers: keeps the agenda, and hears of first tokens and ends."""

    def later(self, at: float, action: Callable[[Any, float], None], about: Any) -> None:
        """Call `action(about, at)` when it is that late."""
        ...

    def first_token(self, job: Job, now: float) -> None:
        """An answer began."""
        ...

    def ended(self, job: Job, now: float) -> None:
        """An answer ended."""
        ...


class Warmth:
    """A cache, and the blocks that requests which are not prefilled yet will put into it, with how many they are.

    `shared` says that several workers have it together.
    """

    __slots__ = ("cache", "coming", "shared")

    def __init__(self, cache_blocks: int, *, shared: bool = False) -> None:
        self.cache = PinnedCache(cache_blocks)
        self.shared = shared
        self.coming: dict[bytes, int] = {}

    def expected(self, prompt: Prompt) -> int:
        """Leading blocks of a prompt that are held or coming."""
        cache, coming, chain = self.cache, self.coming, prompt.exact_blocks
        held, missing = cache.match(chain), len(chain) + 1
        while missing - held > 1:
            middle = (held + missing) // 2
            if chain[middle - 1] in coming:
                held = middle
            else:
                missing = middle
        return held


class Worker(ABC):
    """What both engines share. `pending_tokens` are uncached tokens of those that wait."""

    def __init__(self, settings: EngineSettings, warmth: Warmth, host: Host) -> None:
        self.settings = settings
        self.warmth = warmth
        self.host = host
        self.queue: deque[Job] = deque()
        self.in_flight = 0
        self.active_blocks = 0
        self.pending_tokens = 0
        self.busy_seconds = 0.0

    def send(self, job: Job, now: float) -> None:
        """A request comes."""
        prompt, coming = job.request.prompt, self.warmth.coming
        job.estimated_tokens = max(1, prompt.tokens - self.expected_tokens(prompt))
        self.pending_tokens += job.estimated_tokens
        self.in_flight += 1
        self.active_blocks += len(prompt.exact_blocks)
        for block in prompt.exact_blocks:
            coming[block] = coming.get(block, 0) + 1
        self.queue.append(job)
        self.wake(now)

    def cached_tokens(self, prompt: Prompt) -> int:
        """Of a prompt, in the cache now; at most all but one."""
        return max(0, min(prompt.tokens - 1, self.warmth.cache.match(prompt.exact_blocks) * prompt.block_tokens))

    def expected_tokens(self, prompt: Prompt) -> int:
        """The same, with what those not prefilled yet will have put into it."""
        return max(0, min(prompt.tokens - 1, self.warmth.expected(prompt) * prompt.block_tokens))

    @abstractmethod
    def wake(self, now: float) -> None:
        """Begin with what waits, if there is nothing else to do."""

    @abstractmethod
    def work_seconds(self, now: float) -> float:
        """Prefill ahead of a request that would come now."""

    def prefilled(self, job: Job, now: float) -> None:
        """A prefill is over: its blocks are held until its answer ends, and its first token is there."""
        blocks, coming = job.request.prompt.exact_blocks, self.warmth.coming
        for block in blocks:
            if coming[block] > 1:
                coming[block] -= 1
            else:
                del coming[block]
        self.warmth.cache.pin(blocks)
        job.first_token_at = now
        self.host.first_token(job, now)

    def end(self, job: Job, now: float) -> None:
        """An answer is complete."""
        blocks = job.request.prompt.exact_blocks
        self.warmth.cache.unpin(blocks)
        self.in_flight -= 1
        self.active_blocks -= len(blocks)
        self.host.ended(job, now)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the cache is sound and counts agree."""
        self.warmth.cache.check_integrity()
        if self.in_flight < len(self.queue) or self.active_blocks < 0 or self.pending_tokens < 0:
            raise AssertionError("a worker has fewer requests in flight than wait")
        if not self.in_flight and (self.queue or self.active_blocks or self.pending_tokens):
            raise AssertionError("an idle worker has something to do")
