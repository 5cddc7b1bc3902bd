"""What was never hit goes first, whatever the policy for the rest: half of the automatic retention."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from backends.eviction.policy import EvictionPolicy
from backends.free_queue import Block, FreeQueue

PROBATION_SHARE = 0.6
"""Of the partition. With less, new content is gone before its first hit, and the hit rate falls below plain LRU's."""


class Probation:
    """A queue for new content in front of another policy, which gets only what was hit at least once.

    While the queue is shorter than its share, what the other policy would evict is put last in the queue, so that old
    hits do not stay for ever; and not evicted at once, because its tails may stand in the queue already.
    """

    def __init__(self, capacity_blocks: int, policy: Callable[[int], EvictionPolicy]) -> None:
        self._least = int(PROBATION_SHARE * capacity_blocks)
        self._queue = FreeQueue()
        self._rest = policy(capacity_blocks)

    def add(self, block: Block) -> None:
        """A block that was never hit waits in front."""
        if block.uses:
            self._rest.add(block)
        else:
            self._queue.append(block)

    def pop(self) -> Block | None:
        """The first in the queue, which is filled up before."""
        if self._queue.count <= self._least:
            demoted = self._rest.pop()
            if demoted is not None:
                self._queue.append(demoted)
        return self._queue.pop()

    def queues(self) -> Iterator[FreeQueue]:
        """The new ones, then the other policy's."""
        yield self._queue
        yield from self._rest.queues()
