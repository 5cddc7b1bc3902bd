"""What tests of eviction policies are built from: free blocks with a number of hits, and the order they go in."""

from __future__ import annotations

from collections.abc import Iterable

from backends.eviction.policy import EvictionPolicy
from backends.free_queue import Block


def build_block(number: int, uses: int = 0) -> Block:
    block = Block(number)
    block.uses = uses
    return block


def build_blocks(policy: EvictionPolicy, uses: Iterable[int], first: int = 0) -> list[Block]:
    """Blocks with so many hits each, numbered from `first`, added in order."""
    blocks = [build_block(number, count) for number, count in enumerate(uses, first)]
    for block in blocks:
        policy.add(block)
    return blocks


def hit(policy: EvictionPolicy, block: Block) -> None:
    """A request finds a block and gives it back."""
    assert block.queue is not None
    block.queue.remove(block)
    block.uses += 1
    policy.add(block)


def evicted(policy: EvictionPolicy, count: int | None = None) -> list[int]:
    """The numbers of the next blocks to go, or of all; the policy's queues are sound all the time."""
    numbers: list[int] = []
    while count is None or len(numbers) < count:
        for queue in policy.queues():
            assert not list(queue.faults())
        block = policy.pop()
        if block is None:
            return numbers
        numbers.append(block.block_id)
    return numbers
