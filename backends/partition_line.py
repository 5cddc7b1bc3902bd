"""Who may pass in the queue when somebody does not fit: whom it takes nothing from."""

from __future__ import annotations

from backends.block_pool import BlockPool
from backends.partitions import UNNAMED
from backends.sequence import Sequence


class PartitionLine:
    """One step's look at the queue of a pool with partitions.

    A sequence that does not fit holds up those of its own partition. If it is the pool that is full, and not only its
    partition, it also holds up all others but those whose partition has not got to its floor, which is promised.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._full: set[str] = set()
        self._pool_is_full = False

    def passes_over(self, sequence: Sequence) -> bool:
        """Whether a sequence has to wait for one before it."""
        if sequence.partition in self._full:
            return True
        return self._pool_is_full and not self._below_floor(sequence.partition)

    def is_too_long_for(self, sequence: Sequence, block_tokens: int) -> None:
        """A sequence did not fit."""
        self._full.add(sequence.partition)
        wanted = -(-len(sequence.token_ids) // block_tokens)
        self._pool_is_full = self._pool_is_full or self._pool.available(UNNAMED) < wanted

    def _below_floor(self, partition: str) -> bool:
        return any(one.name == partition and one.referenced < one.floor for one in self._pool.occupancy())
