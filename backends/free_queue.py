"""Blocks, and queues of those nobody holds: doubly linked lists through the blocks themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from backends.hashing import BlockKey
from backends.retention import Retention

if TYPE_CHECKING:
    from backends.shelf import Shelf


class Block:
    """One block of K/V slots. `key` is set while its content is cached.

    `owner` is the partition that took it last; `queue` the one it stands in while nobody holds it. `uses` counts how
    often its content was hit, `heat` how often of late, as of `heat_seconds`; `retention` and `until` say what is
    wished for it. Times are the engine's seconds.
    """

    __slots__ = (
        "block_id",
        "heat",
        "heat_seconds",
        "key",
        "next",
        "owner",
        "previous",
        "queue",
        "ref_count",
        "retention",
        "until",
        "uses",
    )

    owner: Shelf

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.key: BlockKey | None = None
        self.queue: FreeQueue | None = None
        self.retention = Retention.NORMAL
        self.until: float | None = None
        self.uses = 0
        self.heat = self.heat_seconds = 0.0
        self.previous = self
        self.next = self


class FreeQueue:
    """First out is evicted first. Every operation is O(1) and makes no object.

    A fake head and a fake tail stand at the ends, so that no operation has a special case there.
    """

    __slots__ = ("_head", "_tail", "count")

    def __init__(self) -> None:
        self._head = Block(-1)
        self._tail = Block(-1)
        self._head.next = self._tail
        self._tail.previous = self._head
        self.count = 0

    def pop(self) -> Block | None:
        """Take out the first block; None when there is none."""
        block = self._head.next
        if block is self._tail:
            return None
        following = block.next
        self._head.next = following
        following.previous = self._head
        block.queue = None
        self.count -= 1
        return block

    def remove(self, block: Block) -> None:
        """Take out one block from anywhere; ValueError when it is not in the queue."""
        if block.queue is not self:
            raise ValueError(f"block {block.block_id} is not in the free queue")
        previous, following = block.previous, block.next
        previous.next = following
        following.previous = previous
        block.queue = None
        self.count -= 1

    def append(self, block: Block) -> None:
        """Put a block last."""
        if block.queue is not None:
            raise ValueError(f"block {block.block_id} is in the free queue already")
        tail = self._tail
        last = tail.previous
        block.previous, block.next, block.queue = last, tail, self
        last.next = tail.previous = block
        self.count += 1

    def prepend(self, block: Block) -> None:
        """Put a block first."""
        if block.queue is not None:
            raise ValueError(f"block {block.block_id} is in the free queue already")
        head = self._head
        first = head.next
        block.previous, block.next, block.queue = head, first, self
        head.next = first.previous = block
        self.count += 1

    def __iter__(self) -> Iterator[Block]:
        """The blocks, first out first; for tests and integrity checks."""
        block = self._head.next
        while block is not self._tail:
            yield block
            block = block.next

    def faults(self) -> Iterator[str]:
        """What is broken: links that disagree with each other, with the blocks or with the count."""
        previous, seen = self._head, 0
        for block in self:
            if block.previous is not previous:
                yield f"block {block.block_id}: its back link is wrong"
            if block.queue is not self:
                yield f"block {block.block_id} is linked into a queue that it does not name"
            previous, seen = block, seen + 1
        if self._tail.previous is not previous:
            yield "the back link of the queue's end is wrong"
        if seen != self.count:
            yield f"{seen} blocks in the free queue, counted {self.count}"
