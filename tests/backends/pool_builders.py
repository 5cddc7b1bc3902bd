"""What tests of the block pool are built from: chains of content, cached and given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from backends.block_pool import BlockPool
from backends.hashing import BlockHasher, BlockKey, pack
from backends.partitions import Partitions

HASHER = BlockHasher(2)
ROOT = HASHER.root()


def build_chain(contents: Sequence[int]) -> list[BlockKey]:
    """The keys of blocks with these contents, each after the one before it."""
    keys: list[BlockKey] = []
    HASHER.extend(keys, ROOT, pack(token for content in contents for token in (content, content)))
    return keys


class Reader:
    """A journal that follows what is cached, as a reader of events does; AssertionError for what makes no sense."""

    def __init__(self) -> None:
        self.live: set[BlockKey] = set()

    def stored(self, key: BlockKey, block_id: int) -> None:
        assert key not in self.live, "stored twice"
        self.live.add(key)

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        assert key in self.live, "overwritten, but never stored"

    def removed(self, key: BlockKey) -> None:
        self.live.remove(key)

    def cleared(self) -> None:
        self.live.clear()

    def check(self, pool: BlockPool) -> None:
        """What it knows is what the pool has."""
        keys = {pool.key_of(block_id) for block_id in range(1, pool.usable_blocks + 1)} - {None}
        assert self.live == keys


def build_pool(blocks: int, *partitions: str, **settings) -> BlockPool:
    """A pool of so many usable blocks."""
    return BlockPool(blocks + 1, partitions=Partitions.parse(partitions), **settings)


def found(pool: BlockPool, contents: Sequence[int]) -> list[int]:
    """The blocks of the longest cached beginning."""
    hits, parent = [], ROOT
    for key in build_chain(contents):
        hit = pool.find(key, parent)
        if hit is None:
            break
        block_id, parent = hit
        hits.append(block_id)
    return hits


def take(pool: BlockPool, contents: Sequence[int], partition: str = "") -> list[int]:
    """What a request does at its start: hold what is cached, take and compute the rest. The block table."""
    hits = found(pool, contents)
    pool.touch(hits, partition)
    table = hits + pool.get_new_blocks(len(contents) - len(hits), partition)
    keys, parent = build_chain(contents), ROOT
    for index, block_id in enumerate(table):
        if index < len(hits):
            parent = pool.key_of(block_id) or parent
        else:
            parent = pool.cache_full_block(block_id, keys[index], parent)
    return table


def give_back(pool: BlockPool, table: Sequence[int]) -> None:
    """What a request does at its end."""
    pool.free_blocks(list(reversed(table)))


def use(pool: BlockPool, contents: Sequence[int], partition: str = "") -> list[int]:
    """A whole request; the blocks that have its content now, held by nobody."""
    table = take(pool, contents, partition)
    give_back(pool, table)
    return table


def fill(pool: BlockPool, contents: Iterable[int], partition: str = "") -> None:
    """A request of one block for each content."""
    for content in contents:
        use(pool, [content], partition)


def occupancy(pool: BlockPool, name: str = ""):
    """What one partition has."""
    return next(share for share in pool.occupancy() if share.name == name)
