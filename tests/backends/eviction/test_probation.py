"""Probation: in front of any policy, while there is much that is new."""

from __future__ import annotations

import pytest

from backends.eviction import EVICTION_POLICIES, policy_maker
from backends.eviction.lru import Lru
from backends.eviction.probation import PROBATION_SHARE, Probation
from tests.backends.eviction.policy_builders import build_blocks, evicted


def test_seen_once_goes_before_what_was_hit():
    """New content beyond the share of probation goes first, however old the rest is."""
    policy = Probation(10, Lru)
    build_blocks(policy, [1, 2])
    build_blocks(policy, [0] * 8, first=2)
    assert evicted(policy, 2) == [2, 3]


def test_old_hits_give_way_where_little_is_new():
    """While new content is below its share, the oldest of the rest joins it, behind what stands there already."""
    policy = Probation(10, Lru)
    least = int(PROBATION_SHARE * 10)
    build_blocks(policy, [1, 2, 1])
    build_blocks(policy, [0] * least, first=3)
    assert evicted(policy, 1) == [3]
    assert [block.block_id for queue in policy.queues() for block in queue] == [*range(4, least + 3), 0, 1, 2]


def test_a_chain_whose_head_was_hit_goes_tail_first():
    """The tails are on probation; the head joins behind them."""
    policy = Probation(10, Lru)
    build_blocks(policy, [0, 0, 1])
    assert evicted(policy) == [0, 1, 2]


def test_all_its_queues_are_told():
    """New blocks, then those of the policy behind."""
    policy = Probation(10, Lru)
    build_blocks(policy, [1, 0])
    assert [block.block_id for queue in policy.queues() for block in queue] == [1, 0]


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_every_policy_can_stand_behind_it(name):
    """Blocks come out once each, whatever is behind."""
    policy = policy_maker(name, probation=True)(20)
    build_blocks(policy, [0, 1, 5, 0, 2, 1])
    assert sorted(evicted(policy)) == [0, 1, 2, 3, 4, 5]
