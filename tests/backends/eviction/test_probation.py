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


def test_the_rest_gives_way_where_little_is_new():
    """Below its share new content is kept, so that it can live to see its first hit."""
    policy = Probation(10, Lru)
    least = int(PROBATION_SHARE * 10)
    build_blocks(policy, [1, 2])
    build_blocks(policy, [0] * least, first=2)
    assert evicted(policy) == [0, 1, *range(2, least + 2)]


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
