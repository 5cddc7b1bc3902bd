"""Which blocks are cached, by the digest of their content; equal content may lie in several blocks."""

from __future__ import annotations

from collections.abc import Iterator

from backends.free_queue import Block
from backends.hashing import BlockKey, same_chain


class BlockMap:
    """Digest to the block, or to {block id: block} when several have it.

    Copies are kept apart and never merged, because block tables are append-only. Blocks of different content may
    share a digest; `find` tells them apart, and counts the `collisions` that it met.
    """

    __slots__ = ("_blocks", "collisions", "count")

    def __init__(self) -> None:
        self._blocks: dict[bytes, Block | dict[int, Block]] = {}
        self.count = 0
        self.collisions = 0

    @property
    def digests_count(self) -> int:
        """How many different digests there are; `count` less this is the number of copies."""
        return len(self._blocks)

    def keys_of(self, digest: bytes) -> list[BlockKey]:
        """The keys with this digest: one, but for copies and collisions."""
        found = self._blocks.get(digest)
        blocks = [found] if isinstance(found, Block) else list((found or {}).values())
        return [block.key for block in blocks if block.key is not None]

    def find(self, key: BlockKey, parent: BlockKey) -> Block | None:
        """A block with the tokens of `key` and the ancestors of `parent` (which stands in for the key's own)."""
        found = self._blocks.get(key.digest)
        if found is None:
            return None
        if isinstance(found, Block):
            if _is(found, key, parent):
                return found
        else:
            for block in found.values():
                if _is(block, key, parent):
                    return block
        self.collisions += 1
        return None

    def insert(self, block: Block, key: BlockKey) -> None:
        """Make a block findable by `key`; ValueError when it is findable already."""
        if block.key is not None:
            raise ValueError(f"block {block.block_id} is cached already")
        block.key = key
        self.count += 1
        found = self._blocks.get(key.digest)
        if found is None:
            self._blocks[key.digest] = block
        elif isinstance(found, dict):
            found[block.block_id] = block
        else:
            self._blocks[key.digest] = {found.block_id: found, block.block_id: block}

    def remove(self, block: Block) -> bool:
        """Forget one block; its copies stay. True when it had none. ValueError when it is not cached."""
        key = block.key
        if key is None:
            raise ValueError(f"block {block.block_id} is not cached")
        block.key = None
        self.count -= 1
        found = self._blocks[key.digest]
        if isinstance(found, dict):
            del found[block.block_id]
            if len(found) == 1:
                self._blocks[key.digest] = next(iter(found.values()))
            return all(other.key is not key for other in found.values())  # copies share their key
        del self._blocks[key.digest]
        return True

    def __iter__(self) -> Iterator[tuple[bytes, Block]]:
        """Every (digest, block); for tests and integrity checks."""
        for digest, found in self._blocks.items():
            for block in found.values() if isinstance(found, dict) else (found,):
                yield digest, block

    def faults(self) -> Iterator[str]:
        """What is broken: blocks found by a digest that is not theirs, or a wrong count."""
        seen = 0
        for digest, block in self:
            if block.key is None or block.key.digest != digest:
                yield f"block {block.block_id} is mapped under a digest that it does not have"
            seen += 1
        if seen != self.count:
            yield f"{seen} blocks mapped, counted {self.count}"


def _is(block: Block, key: BlockKey, parent: BlockKey) -> bool:
    own = block.key
    if own is None or own.tokens != key.tokens:
        return False
    if own.parent is parent:
        return True
    if not same_chain(own.parent, parent):
        return False
    # An equal chain under other objects (its parent was evicted and computed anew): make the next look-up O(1).
    own.parent = parent
    return True
