"""A simulated worker's inside: an exact cache of text blocks and a prefill that serves first come, first served.

One character is one token. A prefill takes a fixed time and the uncached tokens at a rate, an answer then a fixed
time a token, all of it sped up; this is engine A of `homing replay`, on a real clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b

BLOCK_TOKENS = 512
PREFILL_FIXED_SECONDS = 0.02
PREFILL_TOKENS_PER_SECOND = 8000.0
SECONDS_PER_OUTPUT_TOKEN = 0.03


def chain_of(text: str) -> list[bytes]:
    """A name for each block of `text` that stands for its whole beginning; a last partial block has one too."""
    names, parent = [], b""
    for start in range(0, len(text), BLOCK_TOKENS):
        parent = blake2b(parent + text[start : start + BLOCK_TOKENS].encode(), digest_size=16).digest()
        names.append(parent)
    return names


class BlockCache:
    """Least recently used first, ends of chains before their beginnings; blocks in use are held beside it."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._idle: OrderedDict[bytes, None] = OrderedDict()
        self._held: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._idle) + len(self._held)

    @property
    def held(self) -> int:
        """Blocks of requests that are being answered."""
        return len(self._held)

    def match(self, chain: Sequence[bytes]) -> int:
        """How many blocks of `chain` are here, from its beginning."""
        missing = (at for at, name in enumerate(chain) if name not in self._idle and name not in self._held)
        return next(missing, len(chain))

    def hold(self, chain: Sequence[bytes]) -> None:
        """Take the blocks in, and keep them until as many calls of `let_go`."""
        for name in reversed(chain):
            self._held[name] += 1
            self._idle.pop(name, None)
        self._evict()

    def let_go(self, chain: Sequence[bytes]) -> None:
        """What nobody holds any more is the most recent now, the beginning of the chain above all."""
        for name in reversed(chain):
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
                self._idle[name] = None
        self._evict()

    def _evict(self) -> None:
        while len(self) > self.blocks and self._idle:
            self._idle.popitem(last=False)


@dataclass(slots=True)
class Counts:
    """What a worker has done; times in its own seconds, lateness (how late a prefill's end was told) in real ones."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    busy_seconds: float = 0.0
    latest_seconds: float = 0.0
    late_seconds: float = 0.0


class SimulatedWorker:
    """One worker. `speed_up` is how many of its seconds pass in a real one."""

    def __init__(self, number: int, cache_blocks: int, speed_up: float) -> None:
        self.number = number
        self.speed_up = speed_up
        self.started_at = time.time()
        self.waiting = 0
        self.running = 0
        self.counts = Counts()
        self.cache = BlockCache(cache_blocks)
        self._free_at = 0.0
        self._turn = asyncio.Lock()  # wakes those who wait in order of arrival

    def forget(self) -> None:
        """Counts at nought and an empty cache; requests that are being answered end as if nothing had happened."""
        self.cache, self.counts, self.started_at = BlockCache(self.cache.blocks), Counts(), time.time()

    @asynccontextmanager
    async def prefilled(self, text: str) -> AsyncIterator[int]:
        """Wait for a turn and for the prefill; yields the cached tokens and holds the blocks until the end."""
        chain, cache, came_at = chain_of(text), self.cache, asyncio.get_running_loop().time()
        self.waiting += 1
        try:
            async with self._turn:
                cached = await self._prefill(cache, chain, len(text), came_at)
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            yield cached
        finally:
            self.running -= 1
            cache.let_go(chain)

    async def decode(self, tokens: int) -> None:
        """Wait as long as so many output tokens take."""
        self.counts.output_tokens += tokens
        await asyncio.sleep(tokens * SECONDS_PER_OUTPUT_TOKEN / self.speed_up)

    async def _prefill(self, cache: BlockCache, chain: list[bytes], tokens: int, came_at: float) -> int:
        """The time it takes, and the blocks held after it; how many tokens were found cached.

        It begins when the one before should have ended: how late this process was told of that slows no worker.
        """
        loop, matched = asyncio.get_running_loop(), chain[: cache.match(chain)]
        cached = min(len(matched) * BLOCK_TOKENS, max(0, tokens - 1))
        seconds = PREFILL_FIXED_SECONDS + (tokens - cached) / PREFILL_TOKENS_PER_SECOND
        self._free_at = max(self._free_at, came_at) + seconds / self.speed_up
        cache.hold(matched)
        try:
            await asyncio.sleep(self._free_at - loop.time())
            cache.hold(chain)
        finally:
            cache.let_go(matched)
        self._count(tokens, cached, seconds, late_seconds=loop.time() - self._free_at)
        return cached

    def _count(self, tokens: int, cached: int, seconds: float, late_seconds: float) -> None:
        counts = self.counts
        counts.requests += 1
        counts.prompt_tokens += tokens
        counts.cached_tokens += cached
        counts.busy_seconds += seconds
        counts.late_seconds += late_seconds
        counts.latest_seconds = max(counts.latest_seconds, late_seconds)
