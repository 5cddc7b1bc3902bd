"""Who holds which block: reference counts, the free queue, and what is cached. Knows nothing of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from backends.block_map import BlockMap
from backends.free_queue import Block, FreeQueue
from backends.hashing import BlockKey

NULL_BLOCK = 0
"""A block id that is never given out: padding in block tables may point at it."""


class BlockPool:
    """`num_blocks` blocks, of which block 0 is never used. All operations are O(1) per block.

    A cached block that nobody holds stays findable until it is taken for something else: free and cached are no
    opposites.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 2:
            raise ValueError(f"num_blocks must be at least 2 (block 0 is never used), not {num_blocks}")
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._free = FreeQueue()
        self._cached = BlockMap()
        self._blocks[NULL_BLOCK].ref_count = 1
        for block in self._blocks[NULL_BLOCK + 1 :]:
            self._free.append(block)

    @property
    def usable_blocks(self) -> int:
        """Blocks that can be given out at all."""
        return len(self._blocks) - 1

    @property
    def free_blocks_count(self) -> int:
        """Blocks nobody holds, cached or not."""
        return self._free.count

    @property
    def cached_blocks_count(self) -> int:
        """Blocks that a lookup can find, held or not; copies count each."""
        return self._cached.count

    @property
    def usage(self) -> float:
        """Share of the usable blocks that somebody holds, 0..1."""
        return 1.0 - self._free.count / self.usable_blocks

    def unheld(self, block_ids: Iterable[int]) -> int:
        """How many of these nobody holds: taking them uses up free blocks."""
        return sum(self._blocks[block_id].ref_count == 0 for block_id in block_ids)

    def get_new_blocks(self, count: int) -> list[int]:
        """Take `count` blocks with undefined content, held once each; what they had cached is forgotten.

        ValueError when fewer are free; nothing is taken then.
        """
        if count > self._free.count:
            raise ValueError(f"{count} blocks wanted, {self._free.count} free")
        return [self._take_first() for _ in range(count)]

    def _take_first(self) -> int:
        block = self._free.pop_first()
        if block.key is not None:
            self._cached.remove(block)
        block.ref_count = 1
        return block.block_id

    def touch(self, block_ids: Iterable[int]) -> None:
        """Hold found blocks once more; they keep their content."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_count == 0:
                self._free.remove(block)
            block.ref_count += 1

    def free_blocks(self, block_ids: Iterable[int]) -> None:
        """Hold each block once less, in the order of eviction: pass a block table reversed, so its tail goes first.

        Blocks without cached content are reused before all others, cached ones after all others. ValueError for a
        block that nobody holds.
        """
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_count == 0 or block_id == NULL_BLOCK:
                raise ValueError(f"block {block_id} is freed, but nobody holds it")
            block.ref_count -= 1
            if block.ref_count == 0:
                (self._free.prepend if block.key is None else self._free.append)(block)

    def find(self, key: BlockKey, parent: BlockKey) -> tuple[int, BlockKey] | None:
        """A cached block of this content after `parent`, and the key under which it is kept."""
        block = self._cached.find(key, parent)
        if block is None or block.key is None:
            return None
        return block.block_id, block.key

    def cache_full_block(self, block_id: int, key: BlockKey, parent: BlockKey) -> BlockKey:
        """Make a computed full block findable; return the key that all copies of this content share."""
        copy = self._cached.find(key, parent)
        if copy is not None and copy.key is not None:
            key = copy.key
        else:
            key.parent = parent
        self._cached.insert(self._blocks[block_id], key)
        return key

    def evict(self, block_ids: Iterable[int]) -> None:
        """Forget what these blocks have cached; whoever holds them goes on holding them."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.key is not None:
                self._cached.remove(block)

    def reset(self) -> bool:
        """Forget everything cached; False, and nothing done, while any block is held."""
        if self._free.count != self.usable_blocks:
            return False
        self.evict(range(len(self._blocks)))
        return True

    def key_of(self, block_id: int) -> BlockKey | None:
        """The key under which a block is cached, or None."""
        return self._blocks[block_id].key

    def check_integrity(self, holders: Iterable[Sequence[int]] | None = None) -> None:
        """Raise AssertionError on any broken invariant; with `holders` (block tables) also count the references."""
        for fault in chain(self._free.faults(), self._cached.faults(), self._faults(holders)):
            raise AssertionError(fault)

    def _faults(self, holders: Iterable[Sequence[int]] | None) -> Iterator[str]:
        null, *usable = self._blocks
        if null.ref_count != 1 or null.key is not None:
            yield "block 0 was taken, freed or cached"
        for block in usable:
            if block.ref_count < 0 or (block.next is block) != (block.ref_count > 0):
                yield f"block {block.block_id} has {block.ref_count} references and is free and held, or neither"
        if self._free.count + sum(block.ref_count > 0 for block in usable) != self.usable_blocks:
            yield "a block was lost"
        if sum(block.key is not None for block in usable) != self._cached.count:
            yield "a block has a key but is not mapped"
        if holders is not None:
            expected = Counter(chain.from_iterable(holders))
            for block in usable:
                if block.ref_count != expected[block.block_id]:
                    yield f"block {block.block_id}: {block.ref_count} references, {expected[block.block_id]} holders"
