"""`clock`: a second chance for what was hit."""

from __future__ import annotations

from backends.eviction.clock import Clock
from tests.backends.eviction.policy_builders import build_blocks, evicted, hit


def test_blocks_that_were_never_hit_go_in_turn():
    """Without hits it is a plain queue."""
    policy = Clock(10)
    build_blocks(policy, [0, 0, 0])
    assert evicted(policy) == [0, 1, 2]


def test_a_block_that_was_hit_gets_another_turn():
    """The hand passes it once, behind those that came later."""
    policy = Clock(10)
    build_blocks(policy, [1, 0, 0])
    assert evicted(policy) == [1, 2, 0]


def test_many_hits_are_worth_one_turn():
    """The reference bit knows no numbers."""
    policy = Clock(10)
    build_blocks(policy, [9, 1])
    assert evicted(policy, 1) == [0]


def test_a_second_turn_needs_a_second_hit():
    """The bit is cleared when the hand passes, and set by the next hit."""
    policy = Clock(10)
    blocks = build_blocks(policy, [1, 0, 0, 0])
    assert evicted(policy, 1) == [1]
    hit(policy, blocks[2])
    assert evicted(policy) == [3, 0, 2]


def test_a_chain_loses_its_tail_first_turn_after_turn():
    """Tail and head were hit as often: the hand passes both, the tail always before."""
    policy = Clock(10)
    build_blocks(policy, [1, 1, 2])
    assert evicted(policy) == [0, 1, 2]


def test_an_empty_clock_stops():
    """The hand does not turn for ever."""
    policy = Clock(10)
    assert policy.pop() is None
