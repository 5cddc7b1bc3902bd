"""Who may pass in the queue when somebody does not fit: whom it takes nothing from."""

from __future__ import annotations

from backends.block_pool import BlockPool
from backends.sequence import Sequence


class PartitionLine:
    """One step's look at the queue: the partitions that are `held_up`, because a sequence before theirs does not fit.

    It holds up those of its own partition. If it is the pool that it lacks, and not its partition's ceiling, the
    others may still take what is promised to them, up to their floor, and no more: so the first one gets on in the end.
    """

    __slots__ = ("_pool", "_pool_is_full", "held_up")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._pool_is_full = False
        self.held_up: set[str] = set()

    def passes(self, sequence: Sequence, block_tokens: int) -> bool:
        """Whether a sequence may be tried although others before it did not fit; if not, its partition is held up."""
        if self._pool_is_full and -(-len(sequence.token_ids) // block_tokens) > self._pool.promised(sequence.partition):
            self.held_up.add(sequence.partition)
            return False
        return True

    def is_too_long_for(self, sequence: Sequence) -> None:
        """A sequence did not fit."""
        self.held_up.add(sequence.partition)
        self._pool_is_full = self._pool_is_full or not self._pool.ceiling_binds(sequence.partition)
