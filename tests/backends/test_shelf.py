"""One partition's free blocks in order of eviction, and the counts of the others."""

from __future__ import annotations

import pytest

from backends.eviction.lru import Lru
from backends.free_queue import Block
from backends.retention import Retention
from backends.shelf import Shelf
from tests.backends.pool_builders import build_chain


def build_shelf(blocks: int = 10) -> Shelf:
    return Shelf("support", floor=0, ceiling=blocks, pin_quota=blocks, policy=Lru)


def build_held(shelf: Shelf, number: int, retention: Retention = Retention.NORMAL, until: float | None = None) -> Block:
    block = Block(number)
    block.owner, block.retention, block.until = shelf, retention, until
    block.key = build_chain([number])[0]
    shelf.used += 1
    shelf.kept += 1
    shelf.pins += retention is Retention.PIN
    return block


def faults(shelf: Shelf) -> list[str]:
    return list(shelf.faults())


def test_what_is_held_cannot_be_evicted():
    """Blocks count as kept until they are added."""
    shelf = build_shelf()
    build_held(shelf, 1)
    assert (shelf.used, shelf.kept, shelf.held) == (1, 1, 1)
    with pytest.raises(ValueError, match="'support' has nothing to evict"):
        shelf.pop()


def test_a_block_comes_and_goes():
    """Added it can be evicted; removed it is held again."""
    shelf = build_shelf()
    block = build_held(shelf, 1)
    shelf.add(block)
    assert (shelf.used, shelf.kept) == (1, 0)
    shelf.remove(block)
    assert (shelf.used, shelf.kept) == (1, 1)
    shelf.add(block)
    assert shelf.pop() is block
    assert not faults(shelf)


def test_a_pinned_block_stays_kept_when_it_is_free():
    """It counts among the kept, is held by nobody, and is never popped."""
    shelf = build_shelf()
    block = build_held(shelf, 1, Retention.PIN, 5.0)
    shelf.add(block)
    assert (shelf.kept, shelf.held, shelf.pinned) == (1, 0, 1)
    with pytest.raises(ValueError, match="nothing to evict"):
        shelf.pop()
    shelf.expire(5.0)
    assert (shelf.kept, shelf.pins, shelf.pinned) == (0, 0, 0)
    assert shelf.pop() is block


def test_removing_what_is_not_free_raises():
    """A held block stands in no queue."""
    shelf = build_shelf()
    with pytest.raises(ValueError, match="block 1 is neither held nor cached"):
        shelf.remove(build_held(shelf, 1))


def test_a_released_pin_is_a_priority():
    """It goes after ordinary blocks, and keeps its end."""
    shelf = build_shelf()
    pinned = build_held(shelf, 1, Retention.PIN, 5.0)
    ordinary = build_held(shelf, 2)
    shelf.add(pinned)
    shelf.release_pins()
    shelf.add(ordinary)
    assert (shelf.kept, shelf.pins, pinned.until) == (0, 0, 5.0)
    assert not faults(shelf)
    assert [shelf.pop(), shelf.pop()] == [ordinary, pinned]


def test_a_tail_expires_before_its_pinned_head():
    """Both end together; the tail was over the quota, so it is a priority, and is evicted first afterwards."""
    shelf = build_shelf()
    tail, head = build_held(shelf, 2, Retention.PRIORITY, 5.0), build_held(shelf, 1, Retention.PIN, 5.0)
    for block in (tail, head):
        shelf.add(block)
    shelf.expire(5.0)
    assert [shelf.pop(), shelf.pop()] == [tail, head]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda block: setattr(block, "retention", Retention.PRIORITY), "is priority, but waits as normal"),
        (lambda block: setattr(block, "key", None), "has no content, but waits to be evicted"),
        (lambda block: setattr(block, "owner", build_shelf()), "waits in partition 'support', which does not own it"),
        (lambda block: setattr(block, "queue", None), "linked into a queue that it does not name"),
    ],
)
def test_the_check_finds_a_block_in_the_wrong_place(change, complaint):
    """Each block must be what its queue is for."""
    shelf = build_shelf()
    block = build_held(shelf, 1)
    shelf.add(block)
    change(block)
    assert any(complaint in fault for fault in faults(shelf))
