"""Which wish for a block's retention is heeded: the strongest, within the quota of pins."""

from __future__ import annotations

from backends.auto_retention import PIN_SECONDS, became_hot
from backends.free_queue import Block
from backends.lending import Lending
from backends.retention import Retention

RANK = {retention: rank for rank, retention in enumerate(Retention)}

LASTING = (Retention.PRIORITY, Retention.PIN)
"""Only these can have an end."""


class Wishes:
    """The strongest wish for a block holds, of equal ones the one that ends last, until its end.

    EVICT_FIRST is heeded for a block that nobody hit since it was computed: a hit shows that it was wrong. A pin that
    is over a quota, or for which there is no room, is a priority.
    """

    def __init__(self, lending: Lending) -> None:
        self._lending = lending

    def wish(self, block: Block, retention: Retention, until: float | None) -> None:
        """Heed a wish, or not; the block stands in no queue, and counts as held."""
        owner = block.owner
        if retention not in LASTING:
            until = None
        if retention is Retention.PIN and block.retention is not Retention.PIN:
            if self._lending.may_pin(owner):
                owner.pins += 1
            else:
                retention = Retention.PRIORITY
        if retention is block.retention:
            block.until = None if until is None or block.until is None else max(until, block.until)
        elif RANK[retention] > RANK[block.retention] or (retention is Retention.EVICT_FIRST and _is_new(block)):
            block.retention, block.until = retention, until

    def hit(self, block: Block, now: float) -> None:
        """The automatic rule: pin a held block for a while if it was hit often of late."""
        if became_hot(block, now):
            self.wish(block, Retention.PIN, now + PIN_SECONDS)


def _is_new(block: Block) -> bool:
    return block.retention is Retention.NORMAL and not block.uses
