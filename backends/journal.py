"""Who is told what becomes of cached blocks: publishers of events, tiers, statistics."""

from __future__ import annotations

from typing import Protocol

from backends.hashing import BlockKey


class Journal(Protocol):
    """Called by the block pool, in the order in which things happen, in the engine's thread; must be quick.

    A content is `stored` when its first copy becomes findable, and `removed` when its last copy is forgotten; copies
    in between are nobody's business. `overwritten` comes first for a block that is about to be given out again: its
    K/V are still there, and will not be after the call.
    """

    def stored(self, key: BlockKey, block_id: int) -> None:
        """`key` became findable, in `block_id`; its parent was stored before it."""

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        """`block_id`, which holds the content of `key`, is about to be taken for something else."""

    def removed(self, key: BlockKey) -> None:
        """The last block that held the content of `key` forgot it."""

    def cleared(self) -> None:
        """Everything was forgotten at once; no `removed` comes for it."""


class NoJournal:
    """Tells nobody."""

    def stored(self, key: BlockKey, block_id: int) -> None:
        """Nothing."""

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        """Nothing."""

    def removed(self, key: BlockKey) -> None:
        """Nothing."""

    def cleared(self) -> None:
        """Nothing."""


class Journals:
    """Tells several, in order."""

    def __init__(self, *journals: Journal) -> None:
        self._journals = journals

    def stored(self, key: BlockKey, block_id: int) -> None:
        """Pass it on."""
        for journal in self._journals:
            journal.stored(key, block_id)

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        """Pass it on."""
        for journal in self._journals:
            journal.overwritten(key, block_id)

    def removed(self, key: BlockKey) -> None:
        """Pass it on."""
        for journal in self._journals:
            journal.removed(key)

    def cleared(self) -> None:
        """Pass it on."""
        for journal in self._journals:
            journal.cleared()


def together(*journals: Journal) -> Journal:
    """One journal for all that want to be told."""
    wanted = [journal for journal in journals if not isinstance(journal, NoJournal)]
    if not wanted:
        return NoJournal()
    return wanted[0] if len(wanted) == 1 else Journals(*wanted)
