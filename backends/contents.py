"""What the blocks of a pool have cached, and who is told of it."""

from __future__ import annotations

from collections.abc import Iterable

from backends.block_map import BlockMap
from backends.free_queue import Block
from backends.hashing import BlockKey
from backends.journal import Journal, NoJournal


class Contents(BlockMap):
    """A block map that counts what its partitions have cached, and tells a journal of first and last copies."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal | None) -> None:
        super().__init__()
        self._journal = None if isinstance(journal, NoJournal) else journal

    def add(self, block: Block, key: BlockKey, parent: BlockKey) -> BlockKey:
        """Make a computed block findable; return the key that all copies of this content share."""
        copy = self.find(key, parent)
        if copy is not None and copy.key is not None:
            key = copy.key
        else:
            key.parent = parent
        self.insert(block, key)
        block.owner.cached += 1
        if copy is None and self._journal is not None:
            self._journal.stored(key, block.block_id)
        return key

    def forget(self, block: Block, overwriting: bool) -> None:
        """A cached block is not findable any more, and starts without hits; `overwriting`: its K/V will be lost now."""
        if self._journal is None:
            self.remove(block)
        else:
            self._tell(self._journal, block, overwriting)
        block.owner.cached -= 1
        block.uses = 0
        block.heat = 0.0

    def _tell(self, journal: Journal, block: Block, overwriting: bool) -> None:
        key = block.key
        if overwriting and key is not None:
            journal.overwritten(key, block.block_id)
        if self.remove(block) and key is not None:
            journal.removed(key)

    def clear(self, blocks: Iterable[Block]) -> None:
        """All blocks that are cached, `blocks`, are forgotten at once."""
        journal, self._journal = self._journal, None
        for block in blocks:
            self.forget(block, False)
        self._journal = journal
        if journal is not None:
            journal.cleared()
