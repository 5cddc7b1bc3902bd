"""Eviction `lfu`: what was hit least goes first, and hits long ago count less and less."""

from __future__ import annotations

from collections.abc import Iterator

from backends.free_queue import Block, FreeQueue

MOST_USES = 30
"""More hits than this count as so many: it bounds the buckets, and how long something hot in the past stays."""


class Lfu:
    """A bucket per frequency, first in first out, with dynamic ageing (LFU-DA; Arlitt et al., 1999).

    A block goes to bucket `age + 1 + uses`, and `age` is the bucket of the last block evicted: every turn-over of what
    is never hit raises it by one, so a block hit n times survives n turn-overs and then counts as new. No counter is
    ever halved. Buckets in use lie within MOST_USES + 1 of `age`, so a ring of them is enough, and a pop looks at no
    more than the whole ring.
    """

    __slots__ = ("_age", "_buckets")

    def __init__(self, _capacity_blocks: int) -> None:
        self._age = 0
        self._buckets = [FreeQueue() for _ in range(MOST_USES + 2)]

    def add(self, block: Block) -> None:
        """Put a block last in the bucket of its frequency."""
        self._buckets[(self._age + 1 + min(block.uses, MOST_USES)) % len(self._buckets)].append(block)

    def pop(self) -> Block | None:
        """The first block of the lowest bucket that has one."""
        buckets = self._buckets
        for age in range(self._age, self._age + len(buckets)):
            block = buckets[age % len(buckets)].pop()
            if block is not None:
                self._age = age
                return block
        return None

    def queues(self) -> Iterator[FreeQueue]:
        """The buckets, the lowest first."""
        for number in range(len(self._buckets)):
            yield self._buckets[(self._age + number) % len(self._buckets)]
