"""`lru`: the order in which blocks were given back."""

from __future__ import annotations

from backends.eviction.lru import Lru
from tests.backends.eviction.policy_builders import build_blocks, evicted, hit


def test_what_was_given_back_longest_ago_goes_first():
    """The number of hits does not matter, only when the last one was."""
    policy = Lru(10)
    build_blocks(policy, [5, 0, 3])
    assert evicted(policy) == [0, 1, 2]


def test_a_hit_puts_a_block_last():
    """It leaves its place and comes back behind all others."""
    policy = Lru(10)
    blocks = build_blocks(policy, [0, 0, 0])
    hit(policy, blocks[0])
    assert evicted(policy) == [1, 2, 0]
