"""What may be broken in a block pool as a whole: references, owners, and counts kept by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from backends.free_queue import Block
from backends.retention import Retention
from backends.shelf import Shelf


def block_faults(
    blocks: Sequence[Block], shelves: Iterable[Shelf], cached: int, holders: Iterable[Sequence[int]] | None
) -> Iterator[str]:
    """Compare all blocks with what is counted of them, and their references with `holders` (block tables)."""
    null, *usable = blocks
    if null.ref_count != 1 or null.key is not None:
        yield "block 0 was taken, freed or cached"
    for block in usable:
        if block.ref_count < 0 or (block.queue is None) != (block.ref_count > 0):
            yield f"block {block.block_id} has {block.ref_count} references and is free and held, or neither"
    if sum(block.key is not None for block in usable) != cached:
        yield "a block has a key but is not mapped"
    for block in usable:
        ordinary = block.retention is Retention.NORMAL and block.until is None and not block.uses
        if not (block.ref_count or block.key or ordinary):
            yield f"block {block.block_id} is nobody's and has no content, but something is wished for it"
    for shelf in shelves:
        yield from _miscounts(shelf, [block for block in usable if block.owner is shelf])
    if holders is not None:
        expected = Counter(chain.from_iterable(holders))
        for block in usable:
            if block.ref_count != expected[block.block_id]:
                yield f"block {block.block_id}: {block.ref_count} references, {expected[block.block_id]} holders"


def _miscounts(shelf: Shelf, blocks: list[Block]) -> Iterator[str]:
    counts = (
        ("held", shelf.held, sum(block.ref_count > 0 for block in blocks)),
        ("used", shelf.used, sum(block.ref_count > 0 or block.key is not None for block in blocks)),
        ("cached", shelf.cached, sum(block.key is not None for block in blocks)),
        ("pinned", shelf.pins, sum(block.retention is Retention.PIN for block in blocks)),
    )
    for what, counted, there in counts:
        if counted != there:
            yield f"partition {shelf.name!r} has {there} {what} blocks, counted {counted}"
