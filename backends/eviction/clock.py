"""Eviction `clock`: in turn, but what was hit since its last turn gets another."""

from __future__ import annotations

from collections.abc import Iterator

from backends.free_queue import Block, FreeQueue


class Clock:
    """Second chance over one queue; `uses` is the reference bit, cleared when the hand passes.

    A pop may pass many blocks, but each costs a hit before: O(1) amortised. The hand passes a chain's tail before its
    head, and a hit on the tail is one on the head, so the tail never has the better chance.
    """

    __slots__ = ("_queue", "add")

    def __init__(self, _capacity_blocks: int) -> None:
        self._queue = FreeQueue()
        self.add = self._queue.append

    def pop(self) -> Block | None:
        """The first block that was not hit since the hand passed it."""
        while (block := self._queue.pop()) is not None and block.uses:
            block.uses = 0
            self._queue.append(block)
        return block

    def queues(self) -> Iterator[FreeQueue]:
        """The one queue."""
        yield self._queue
