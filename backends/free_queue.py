"""Blocks, and the queue of those nobody holds: a doubly linked list through the blocks themselves."""

from __future__ import annotations

from collections.abc import Iterator

from backends.hashing import BlockKey


class Block:
    """One block of K/V slots. `key` is set while its content is cached. Outside the queue it is linked to itself."""

    __slots__ = ("block_id", "key", "next", "previous", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.key: BlockKey | None = None
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

    def pop_first(self) -> Block:
        """Take out the first block; IndexError when there is none."""
        block = self._head.next
        if block is self._tail:
            raise IndexError("no free block")
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        """Take out one block from anywhere; ValueError when it is not in the queue."""
        previous, following = block.previous, block.next
        if following is block:
            raise ValueError(f"block {block.block_id} is not in the free queue")
        previous.next = following
        following.previous = previous
        block.previous = block.next = block
        self.count -= 1

    def append(self, block: Block) -> None:
        """Put a block last."""
        self._link(self._tail.previous, block, self._tail)

    def prepend(self, block: Block) -> None:
        """Put a block first."""
        self._link(self._head, block, self._head.next)

    def _link(self, previous: Block, block: Block, following: Block) -> None:
        if block.next is not block:
            raise ValueError(f"block {block.block_id} is in the free queue already")
        block.previous, block.next = previous, following
        previous.next = following.previous = block
        self.count += 1

    def __iter__(self) -> Iterator[Block]:
        """The blocks, first out first; for tests and integrity checks."""
        block = self._head.next
        while block is not self._tail:
            yield block
            block = block.next

    def faults(self) -> Iterator[str]:
        """What is broken: links that disagree with each other or with the count."""
        previous, seen = self._head, 0
        for block in self:
            if block.previous is not previous:
                yield f"block {block.block_id}: its back link is wrong"
            previous, seen = block, seen + 1
        if self._tail.previous is not previous:
            yield "the back link of the queue's end is wrong"
        if seen != self.count:
            yield f"{seen} blocks in the free queue, counted {self.count}"
