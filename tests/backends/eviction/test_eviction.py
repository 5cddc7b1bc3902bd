"""The table of eviction policies, and what all of them must do."""

from __future__ import annotations

import random

import pytest

from backends.block_pool import BlockPool
from backends.eviction import EVICTION_POLICIES, policy_maker
from tests.backends.eviction.policy_builders import build_blocks, evicted


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_every_block_leaves_once(name):
    """A thousand blocks added, some taken out from the middle, all others evicted once each."""
    policy, generator = policy_maker(name, probation=False)(1000), random.Random(1)
    blocks = build_blocks(policy, [generator.choice((0, 0, 1, 2, 40)) for _ in range(1000)])
    taken = generator.sample(blocks, 100)
    for block in taken:
        block.queue.remove(block)
    assert sorted(evicted(policy) + [block.block_id for block in taken]) == list(range(1000))


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_a_chain_goes_tail_first(name):
    """Given back together, tail first, and hit no more often than their head."""
    policy = policy_maker(name, probation=False)(100)
    build_blocks(policy, [0, 0, 1, 1, 3])
    assert evicted(policy) == [0, 1, 2, 3, 4]


def test_an_unknown_policy_is_refused_with_the_list():
    """The message names what there is."""
    with pytest.raises(ValueError, match="no eviction policy is called 'mru'; there are lru, clock, lfu, slru"):
        BlockPool(4, eviction="mru")
