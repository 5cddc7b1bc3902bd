"""Which free block with cached content goes first: the policies by name, and what each of them can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from backends.eviction.clock import Clock
from backends.eviction.lfu import Lfu
from backends.eviction.lru import Lru
from backends.eviction.slru import Slru
from backends.free_queue import Block, FreeQueue


class EvictionPolicy(Protocol):
    """Keeps the free cached blocks of one partition in order of eviction. Made for `capacity_blocks` at most.

    Blocks freed together are added a chain's tail first, and a hit on a block is a hit on all its ancestors, so a
    policy that never puts a block behind one that came later and was hit as often evicts tails before heads.
    A block leaves by `pop`, or at any time by `block.queue.remove(block)`.
    """

    def add(self, block: Block) -> None:
        """A block became free; `block.uses` says how often it was hit since it was cached. O(1)."""

    def pop(self) -> Block | None:
        """Take out the block to evict, or None when there is none. O(1), amortised."""

    def queues(self) -> Iterator[FreeQueue]:
        """All its queues, for checks."""


EVICTION_POLICIES: dict[str, Callable[[int], EvictionPolicy]] = {
    "lru": Lru,
    "clock": Clock,
    "lfu": Lfu,
    "slru": Slru,
}
"""By the name that `--eviction-policy` takes."""
