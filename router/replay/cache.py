"""What a simulated worker really holds: an exact LRU over blocks, those of requests that decode kept from eviction.

Invariant (prefix closure): a block is held only if its whole prefix is. Whole chains are pinned, and unpinned leaf
first, so that roots are the newest. A match is therefore a bisection over the chain.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PinnedCache:
    """At most `capacity_blocks` blocks; more only while requests that decode pin more."""

    __slots__ = ("_idle", "_pins", "capacity_blocks")

    def __init__(self, capacity_blocks: int) -> None:
        self.capacity_blocks = capacity_blocks
        self._idle: OrderedDict[bytes, None] = OrderedDict()
        self._pins: dict[bytes, int] = {}

    def __len__(self) -> int:
        """How many blocks are held, pinned ones included."""
        return len(self._idle) + len(self._pins)

    def __contains__(self, block: bytes) -> bool:
        """Whether a block is held."""
        return block in self._pins or block in self._idle

    @property
    def pinned_blocks(self) -> int:
        """Blocks of requests that decode now, a shared block counted once."""
        return len(self._pins)

    def match(self, chain: Sequence[bytes]) -> int:
        """How many leading blocks of `chain` are held; changes nothing, not even recency."""
        pins, idle = self._pins, self._idle
        held, missing = 0, len(chain) + 1
        while missing - held > 1:
            middle = (held + missing) // 2
            block = chain[middle - 1]
            if block in idle or block in pins:
                held = middle
            else:
                missing = middle
        return held

    def unpinned(self, chain: Sequence[bytes]) -> int:
        """How many blocks of `chain` nobody pins: what pinning it would add."""
        pins = self._pins
        return sum([block not in pins for block in chain])

    def pin(self, chain: Sequence[bytes]) -> None:
        """Hold all of `chain` until it is unpinned; unpinned blocks go, the oldest first, where there are too many."""
        pins, idle = self._pins, self._idle
        for block in chain:
            if block in pins:
                pins[block] += 1
            else:
                pins[block] = 1
                if block in idle:
                    del idle[block]
        self._evict()

    def unpin(self, chain: Sequence[bytes]) -> None:
        """One pin less on all of `chain`; blocks that nobody pins any more are the newest."""
        pins, idle = self._pins, self._idle
        for block in reversed(chain):
            count = pins[block]
            if count > 1:
                pins[block] = count - 1
            else:
                del pins[block]
                idle[block] = None
        self._evict()

    def check_integrity(self) -> None:
        """Raise AssertionError unless pinned and unpinned blocks are apart and the bound is kept."""
        if self._idle.keys() & self._pins.keys():
            raise AssertionError("a pinned block may be evicted")
        if any(count < 1 for count in self._pins.values()):
            raise AssertionError("a block is pinned less than once")
        if self._idle and len(self) > self.capacity_blocks:
            raise AssertionError("a cache holds more than its capacity")

    def _evict(self) -> None:
        idle = self._idle
        drop = idle.popitem
        for _ in range(min(len(idle), len(self) - self.capacity_blocks)):
            drop(last=False)
