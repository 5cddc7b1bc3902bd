"""The same machines written the slow and obvious way, for the simulator's own to be compared with."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import ceil

from router.replay.core import EngineSettings, Trace


class PlainCache:
    """An LRU as a list, the oldest first, and a list of pinned chains."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.idle: list[bytes] = []
        self.pinned: list[bytes] = []

    def holds(self, block: bytes) -> bool:
        return block in self.idle or block in self.pinned

    def match(self, chain: Sequence[bytes]) -> int:
        count = 0
        while count < len(chain) and self.holds(chain[count]):
            count += 1
        return count

    def pin(self, chain: Sequence[bytes]) -> None:
        self.pinned.extend(chain)
        self.idle = [block for block in self.idle if block not in chain]
        self.evict()

    def unpin(self, chain: Sequence[bytes]) -> None:
        for block in reversed(chain):
            self.pinned.remove(block)
            if block not in self.pinned:
                self.idle.append(block)
        self.evict()

    def evict(self) -> None:
        while self.idle and len(self.idle) + len(set(self.pinned)) > self.capacity:
            self.idle.pop(0)


class Ongoing:
    """A request inside the plain engine."""

    def __init__(self, request) -> None:
        self.request = request
        self.left = 0
        self.context = 0
        self.output = request.output_tokens
        self.cached = 0
        self.first = self.last = 0.0

    def end(self, now: float, cache: PlainCache) -> None:
        self.last = now
        cache.unpin(self.request.prompt.exact_blocks)


def plain_engine_b(trace: Trace, settings: EngineSettings) -> tuple[list[tuple[float, float, int]], float]:
    """One worker, step by step: (first token's time, end, cached tokens) by request, and the busy seconds."""
    cache = PlainCache(settings.cache_blocks)
    everyone = [Ongoing(request) for request in trace.requests]
    coming, queue = deque(everyone), deque()
    prefilling, running = [], []
    now = busy = 0.0
    while coming or queue or prefilling or running:
        if not (queue or prefilling or running):
            now = max(now, coming[0].request.at_seconds)
        while coming and coming[0].request.at_seconds <= now:
            queue.append(coming.popleft())
        prefill_tokens, through = fill(settings, cache, queue, prefilling, running)
        step = settings.step_fixed_seconds + prefill_tokens / settings.prefill_tokens_per_second
        step += sum(one.context for one in running) * settings.seconds_per_context_token
        now, busy = now + step, busy + step
        for one in running:
            one.context, one.output = one.context + 1, one.output - 1
        for one in running:
            if one.output == 0:
                one.end(now, cache)
        for one in through:
            prefilling.remove(one)
            one.first, one.context, one.output = now, one.request.prompt.tokens, one.output - 1
            cache.pin(one.request.prompt.exact_blocks)
            if one.output == 0:
                one.end(now, cache)
        running = [one for one in running + through if one.output]
    return [(one.first, one.last, one.cached) for one in everyone], busy


def fill(settings: EngineSettings, cache: PlainCache, queue, prefilling, running):
    """Share one step's budget out: how many tokens are prefilled, and who is through."""
    budget = left = settings.step_tokens - len(running)
    through = []
    for turn in range(settings.most_sequences + 1):
        if turn == len(prefilling) and left > 0 and queue and admits(queue[0], cache, prefilling, running, settings):
            one = queue.popleft()
            prompt = one.request.prompt
            one.cached = min(cache.match(prompt.exact_blocks) * prompt.block_tokens, prompt.tokens - 1)
            one.left = prompt.tokens - one.cached
            prefilling.append(one)
        if turn == len(prefilling) or left <= 0:
            break
        one = prefilling[turn]
        chunk = min(left, one.left)
        one.left, left = one.left - chunk, left - chunk
        if not one.left:
            through.append(one)
    return budget - left, through


def admits(one: Ongoing, cache: PlainCache, prefilling, running, settings: EngineSettings) -> bool:
    """Room for a whole context, unless it is alone."""
    count = len(prefilling) + len(running)
    if count >= settings.most_sequences:
        return False
    prompt = one.request.prompt
    needed = ceil(one.request.output_tokens / prompt.block_tokens)
    needed += sum(block not in cache.pinned for block in prompt.exact_blocks)
    begun = sum(len(other.request.prompt.exact_blocks) for other in prefilling)
    return not count or len(set(cache.pinned)) + begun + needed <= settings.cache_blocks
