"""`lfu`: the fewest hits go first, and old hits fade."""

from __future__ import annotations

from backends.eviction.lfu import MOST_USES, Lfu
from tests.backends.eviction.policy_builders import build_blocks, evicted, hit


def test_the_fewest_hits_go_first():
    """Among equals the one that was given back longest ago."""
    policy = Lfu(10)
    build_blocks(policy, [2, 0, 1, 0])
    assert evicted(policy) == [1, 3, 2, 0]


def test_a_hit_moves_a_block_up():
    """Its frequency counts from when it is given back."""
    policy = Lfu(10)
    blocks = build_blocks(policy, [0, 0])
    hit(policy, blocks[0])
    assert evicted(policy) == [1, 0]


def test_hits_fade_with_every_turn_over():
    """A block hit three times survives three turn-overs of what is never hit, and goes in the next."""
    policy = Lfu(10)
    build_blocks(policy, [3])
    turned_over = 0
    for turn in range(1, 10):
        build_blocks(policy, [0, 0], first=10 * turn)
        gone = evicted(policy, 2)
        turned_over += 1
        if 0 in gone:
            break
        assert gone == [10 * turn, 10 * turn + 1]
    assert turned_over == 4


def test_more_hits_than_the_most_count_as_the_most():
    """The ring of buckets is bounded, and so is the time that something hot in the past stays."""
    policy = Lfu(10)
    build_blocks(policy, [MOST_USES + 100, MOST_USES, MOST_USES - 1])
    assert evicted(policy) == [2, 0, 1]


def test_a_chain_that_grew_old_still_loses_its_tail_first():
    """A head that many hit outlives its tails at every age, around the whole ring of buckets."""
    policy = Lfu(10)
    for turn in range(3 * MOST_USES):
        build_blocks(policy, [0, 0, 1], first=3 * turn)
        assert evicted(policy) == [3 * turn, 3 * turn + 1, 3 * turn + 2]


def test_the_queues_are_told_lowest_first():
    """For checks: all buckets, in the order of eviction."""
    policy = Lfu(10)
    build_blocks(policy, [4, 0])
    assert [block.block_id for queue in policy.queues() for block in queue] == [1, 0]
