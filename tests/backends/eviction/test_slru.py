"""`slru`: one hit protects from a scan, and protection is bounded."""

from __future__ import annotations

from backends.eviction.slru import PROTECTED_SHARE, Slru
from tests.backends.eviction.policy_builders import build_blocks, evicted, hit


def test_a_scan_takes_nothing_that_was_hit():
    """Any amount of new content pushes out new content only."""
    policy = Slru(100)
    build_blocks(policy, [1, 1])
    build_blocks(policy, [0] * 50, first=10)
    assert evicted(policy, 50) == list(range(10, 60))
    assert evicted(policy) == [0, 1]


def test_a_hit_protects_a_block_on_probation():
    """It changes queues when it is given back."""
    policy = Slru(100)
    blocks = build_blocks(policy, [0, 0])
    hit(policy, blocks[0])
    assert evicted(policy) == [1, 0]


def test_what_is_too_much_for_protection_is_on_probation_again():
    """The oldest protected block comes last among those on probation, and goes before the younger protected ones."""
    capacity = 10
    most = int(PROTECTED_SHARE * capacity)
    policy = Slru(capacity)
    build_blocks(policy, [0])
    build_blocks(policy, [1] * (most + 1), first=1)
    assert evicted(policy, 2) == [0, 1]
    assert [block.block_id for queue in policy.queues() for block in queue] == list(range(2, most + 2))


def test_a_demoted_block_is_protected_again_by_a_hit():
    """Protection is lost by being old, and won back by being used."""
    policy = Slru(10)
    blocks = build_blocks(policy, [1, 1, 1, 1])
    assert blocks[0].queue is not blocks[3].queue
    hit(policy, blocks[0])
    assert blocks[0].queue is blocks[3].queue
    assert evicted(policy) == [1, 2, 3, 0]


def test_a_tiny_partition_protects_nothing_and_works():
    """With room for no protected block it is a plain queue."""
    policy = Slru(2)
    build_blocks(policy, [1, 0])
    assert evicted(policy) == [0, 1]
