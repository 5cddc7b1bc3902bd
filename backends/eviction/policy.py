"""What an eviction policy can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

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
