"""Queues by the second of expiry: O(1) a block, whatever the mix of times to live."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from backends.deadlines import SWEEP_SECONDS, Deadlines
from backends.free_queue import Block


def build_block(number: int, until: float | None) -> Block:
    block = Block(number)
    block.until = until
    return block


def build_deadlines(*untils: float) -> tuple[Deadlines, list[Block]]:
    deadlines, blocks = Deadlines(), [build_block(number, until) for number, until in enumerate(untils)]
    for block in blocks:
        deadlines.add(block)
    return deadlines, blocks


def due(deadlines: Deadlines, now: float) -> list[int]:
    assert not list(deadlines.faults())
    return [block.block_id for block in deadlines.due(now)]


def test_blocks_are_due_at_their_time_and_once():
    """In the order of their ends, those of one second in the order they came."""
    deadlines, _ = build_deadlines(5.0, 3.0, 5.0, 9.0)
    assert due(deadlines, 2.9) == []
    assert due(deadlines, 5.0) == [1, 0, 2]
    assert due(deadlines, 5.0) == []
    assert due(deadlines, 100.0) == [3]


def test_an_end_is_rounded_up_to_a_second():
    """Nothing ends early; it may stay for a second more."""
    deadlines, _ = build_deadlines(4.25)
    assert due(deadlines, 4.9) == []
    assert due(deadlines, 5.0) == [0]


def test_a_block_taken_out_is_never_due():
    """A pinned block that is hit leaves its queue; the empty queue is no harm."""
    deadlines, blocks = build_deadlines(3.0, 4.0)
    blocks[0].queue.remove(blocks[0])
    assert due(deadlines, 10.0) == [1]


def test_a_second_that_has_passed_can_be_used_again():
    """A block given back after its end is due at once."""
    deadlines, _ = build_deadlines(3.0)
    assert due(deadlines, 10.0) == [0]
    deadlines.add(build_block(7, 3.0))
    assert due(deadlines, 10.0) == [7]


def test_what_ends_first_is_popped_first():
    """Over empty queues, until nothing is left."""
    deadlines, blocks = build_deadlines(8.0, 2.0, 5.0)
    blocks[1].queue.remove(blocks[1])
    assert [deadlines.pop(), deadlines.pop(), deadlines.pop()] == [blocks[2], blocks[0], None]


def test_a_block_without_an_end_is_refused():
    """It would wait for ever."""
    with pytest.raises(ValueError, match="block 1 has no end"):
        Deadlines().add(build_block(1, None))


def test_empty_queues_are_swept():
    """Ten thousand seconds, each used for a moment: the heap stays as small as what is in use."""
    deadlines = Deadlines()
    for second in range(10_000):
        block = build_block(second, float(second))
        deadlines.add(block)
        block.queue.remove(block)
    assert len(list(deadlines.queues())) <= SWEEP_SECONDS
    assert not list(deadlines.faults())


def test_a_sweep_keeps_what_is_in_use():
    """Three thousand blocks, half of them taken out again: all others are due in order."""
    generator = random.Random(3)
    deadlines = Deadlines()
    blocks = [build_block(number, generator.uniform(0, 2000)) for number in range(3000)]
    for block in blocks:
        deadlines.add(block)
        if block.block_id % 2:
            block.queue.remove(block)
    left = [blocks[number].until for number in due(deadlines, 2001.0)]
    assert len(left) == 1500
    assert all(later > earlier - 1 for earlier, later in pairwise(left))


def test_the_check_finds_a_block_in_a_wrong_second():
    """An end that was changed while the block waited would be missed."""
    deadlines, blocks = build_deadlines(3.0)
    blocks[0].until = 7.5
    assert list(deadlines.faults()) == ["block 0 ends at 7.5, but waits for second 3"]


def test_the_check_finds_a_lost_second():
    """A queue that the heap does not know would never be due."""
    deadlines, _ = build_deadlines(3.0)
    deadlines._seconds.clear()
    assert list(deadlines.faults()) == ["the seconds of the deadlines are not those of their queues"]
