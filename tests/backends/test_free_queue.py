"""The free queue: a linked list through the blocks, in the order of eviction."""

from __future__ import annotations

import pytest

from backends.free_queue import Block, FreeQueue


def build_queue(count: int) -> tuple[FreeQueue, list[Block]]:
    queue, blocks = FreeQueue(), [Block(number) for number in range(count)]
    for block in blocks:
        queue.append(block)
    return queue, blocks


def order(queue: FreeQueue) -> list[int]:
    assert not list(queue.faults())
    return [block.block_id for block in queue]


def test_the_first_in_is_the_first_out():
    """Blocks leave in the order they came."""
    queue, blocks = build_queue(3)
    assert [queue.pop() for _ in blocks] == blocks
    assert order(queue) == []
    assert queue.count == 0


def test_a_block_leaves_from_the_middle():
    """A hit takes its block out of wherever it stands."""
    queue, blocks = build_queue(3)
    queue.remove(blocks[1])
    assert order(queue) == [0, 2]


def test_a_prepended_block_is_the_next_out():
    """Blocks without content are used again before any cached one."""
    queue, _ = build_queue(2)
    queue.prepend(Block(9))
    assert order(queue) == [9, 0, 1]


def test_an_empty_queue_has_nothing_to_give():
    """Taking from an empty queue gives nothing, not a fake end."""
    queue, _ = build_queue(0)
    assert queue.pop() is None
    assert queue.count == 0


def test_a_block_cannot_leave_twice():
    """Removing a block that is not linked raises."""
    queue, blocks = build_queue(2)
    queue.remove(blocks[0])
    with pytest.raises(ValueError, match="block 0 is not in the free queue"):
        queue.remove(blocks[0])


def test_a_block_cannot_be_in_the_queue_twice():
    """Adding a linked block raises, at either end."""
    queue, blocks = build_queue(2)
    for add in (queue.append, queue.prepend):
        with pytest.raises(ValueError, match="block 1 is in the free queue already"):
            add(blocks[1])
    assert order(queue) == [0, 1]


def test_a_broken_link_is_found():
    """The check sees a back link that points elsewhere, and a count that is off."""
    queue, blocks = build_queue(3)
    blocks[2].previous = blocks[0]
    queue.count = 7
    assert list(queue.faults()) == ["block 2: its back link is wrong", "3 blocks in the free queue, counted 7"]
