"""One partition's blocks: how many are held, cached and pinned, and the free cached ones in order of eviction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from math import inf

from backends.deadlines import Deadlines
from backends.eviction.policy import EvictionPolicy
from backends.free_queue import Block, FreeQueue
from backends.retention import Retention

EVICT_FIRST, NORMAL, PRIORITY, PIN = Retention.EVICT_FIRST, Retention.NORMAL, Retention.PRIORITY, Retention.PIN


class Shelf:
    """Evicts from the lowest retention that has a free block; of those with an end, the one that ends first.

    `used` blocks are its own; of these, `kept` ones are held, or pinned and free (`pinned`), and the others can be
    evicted. `pins` counts the blocks to be pinned, held ones too; `cached` all that a look-up can find. `floor`,
    `ceiling` and `pin_quota` are blocks.
    """

    __slots__ = (
        "_first",
        "_normal",
        "_pinned",
        "_priority",
        "_timed",
        "cached",
        "ceiling",
        "floor",
        "kept",
        "name",
        "pin_quota",
        "pinned",
        "pins",
        "used",
    )

    def __init__(
        self, name: str, *, floor: int, ceiling: int, pin_quota: int, policy: Callable[[int], EvictionPolicy]
    ) -> None:
        self.name = name
        self.floor = floor
        self.ceiling = ceiling
        self.pin_quota = pin_quota
        self.used = self.kept = self.pinned = self.pins = self.cached = 0
        self._first = FreeQueue()
        self._normal = policy(ceiling)
        self._timed = Deadlines()
        self._priority = FreeQueue()
        self._pinned = Deadlines()

    @property
    def held(self) -> int:
        """Blocks that somebody holds."""
        return self.kept - self.pinned

    def add(self, block: Block) -> None:
        """A block with content is no longer held."""
        retention = block.retention
        if retention is NORMAL:
            self._normal.add(block)
        elif retention is PIN:
            self._pinned.add(block)
            self.pinned += 1
            return
        elif retention is EVICT_FIRST:
            self._first.append(block)
        elif block.until is None:
            self._priority.append(block)
        else:
            self._timed.add(block)
        self.kept -= 1

    def remove(self, block: Block) -> None:
        """A free block with content is held; ValueError when it is not free."""
        queue = block.queue
        if queue is None or block.key is None:
            raise ValueError(f"block {block.block_id} is neither held nor cached")
        queue.remove(block)
        if block.retention is PIN:
            self.pinned -= 1
        else:
            self.kept += 1

    def pop(self) -> Block:
        """Take out the block to evict, which is held now; ValueError when all that is free is pinned."""
        block = (self._first.pop() if self._first.count else None) or self._normal.pop()
        if block is None:
            block = self._timed.pop() or self._priority.pop()
            if block is None:
                raise ValueError(f"partition {self.name!r} has nothing to evict")
        self.kept += 1
        return block

    def forget_wish(self, block: Block) -> None:
        """A block, which is in no queue, is ordinary from now on."""
        if block.retention is PIN:
            self.pins -= 1
        block.retention = NORMAL
        block.until = None

    def expire(self, now: float) -> None:
        """Make ordinary what is free and was to be kept until now. O(expired)."""
        for block in self._timed.due(now):  # first, for it may be the tail of what was pinned
            self.kept += 1
            self.forget_wish(block)
            self.add(block)
        for block in self._pinned.due(now):
            self.pinned -= 1
            self.forget_wish(block)
            self.add(block)

    def release_pins(self) -> None:
        """Every free pin is only a priority from now on. O(pinned)."""
        for block in self._pinned.due(inf):
            self.pinned -= 1
            self.pins -= 1
            block.retention = PRIORITY
            self.add(block)

    def _queues(self) -> Iterator[tuple[Retention, FreeQueue]]:
        yield EVICT_FIRST, self._first
        yield PRIORITY, self._priority
        for retention, queues in ((NORMAL, self._normal), (PRIORITY, self._timed), (PIN, self._pinned)):
            for queue in queues.queues():
                yield retention, queue

    def faults(self) -> Iterator[str]:
        """What is broken: queues, blocks in the wrong one, counts, the quota of pins."""
        counts = {PIN: 0, PRIORITY: 0, NORMAL: 0, EVICT_FIRST: 0}
        for retention, queue in self._queues():
            yield from queue.faults()
            counts[retention] += queue.count
            for block in queue:
                if block.owner is not self:
                    yield f"block {block.block_id} waits in partition {self.name!r}, which does not own it"
                if block.retention is not retention:
                    yield f"block {block.block_id} is {block.retention.value}, but waits as {retention.value}"
                if block.key is None:
                    yield f"block {block.block_id} has no content, but waits to be evicted"
        yield from chain(self._timed.faults(), self._pinned.faults())
        if (counts.pop(PIN), sum(counts.values())) != (self.pinned, self.used - self.kept):
            told = f"{self.used} used, {self.kept} kept, {self.pinned} pinned"
            yield f"partition {self.name!r} miscounts its free blocks: {told}"
        if self.pins > self.pin_quota:
            yield f"partition {self.name!r} has {self.pins} pins, its quota is {self.pin_quota}"
        if self.used > self.ceiling:
            yield f"partition {self.name!r} has {self.used} blocks, its ceiling is {self.ceiling}"
