"""Free blocks whose retention ends at some time: queues by the second at which it ends."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import ceil

from backends.free_queue import Block, FreeQueue

SWEEP_SECONDS = 64
"""So many empty queues are never worth a sweep."""


class Deadlines:
    """A block costs O(1); a heap orders the different seconds only, so it never holds more than these.

    A block's end is rounded up to a whole second. Queues that became empty are dropped when their second comes up, or
    by a sweep when the seconds have doubled since the last one.
    """

    __slots__ = ("_queues", "_seconds", "_sweep_at")

    def __init__(self) -> None:
        self._queues: dict[int, FreeQueue] = {}
        self._seconds: list[int] = []
        self._sweep_at = SWEEP_SECONDS

    def add(self, block: Block) -> None:
        """Put a block, whose `until` is set, last among those of its second."""
        if block.until is None:
            raise ValueError(f"block {block.block_id} has no end")
        second = ceil(block.until)
        queue = self._queues.get(second)
        if queue is None:
            if len(self._seconds) >= self._sweep_at:
                self._sweep()
            queue = self._queues[second] = FreeQueue()
            heappush(self._seconds, second)
        queue.append(block)

    def pop(self) -> Block | None:
        """Take out the block whose time ends first; None when there is none."""
        while self._seconds:
            block = self._queues[self._seconds[0]].pop()
            if block is not None:
                return block
            del self._queues[heappop(self._seconds)]
        return None

    def due(self, now: float) -> Iterator[Block]:
        """Take out, one by one, the blocks whose time is over at `now`."""
        while self._seconds and self._seconds[0] <= now:
            queue = self._queues[self._seconds[0]]
            while (block := queue.pop()) is not None:
                yield block
            del self._queues[heappop(self._seconds)]

    def queues(self) -> Iterator[FreeQueue]:
        """All queues, for checks."""
        yield from self._queues.values()

    def _sweep(self) -> None:
        self._queues = {second: queue for second, queue in self._queues.items() if queue.count}
        self._seconds = list(self._queues)
        heapify(self._seconds)
        self._sweep_at = max(SWEEP_SECONDS, 2 * len(self._seconds))

    def faults(self) -> Iterator[str]:
        """What is broken: a queue without its second, or a block in a wrong one."""
        if sorted(self._queues) != sorted(self._seconds):
            yield "the seconds of the deadlines are not those of their queues"
        for second, queue in self._queues.items():
            for block in queue:
                if block.until is None or ceil(block.until) != second:
                    yield f"block {block.block_id} ends at {block.until}, but waits for second {second}"
