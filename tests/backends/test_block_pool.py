"""The block pool: who holds what, what is evicted first, and errors that are never silent."""

from __future__ import annotations

import pytest

from backends.block_pool import NULL_BLOCK, BlockPool
from backends.hashing import BlockHasher, BlockKey, pack


def build_keys(count: int, first: int = 0) -> tuple[BlockKey, list[BlockKey]]:
    hasher = BlockHasher(2)
    keys: list[BlockKey] = []
    root = hasher.root()
    hasher.extend(keys, root, pack(range(first, first + 2 * count)))
    return root, keys


def cache(pool: BlockPool, block_ids: list[int], first: int = 0) -> list[BlockKey]:
    """Make blocks findable as one chain."""
    parent, keys = build_keys(len(block_ids), first)
    for block_id, key in zip(block_ids, keys, strict=True):
        parent = pool.cache_full_block(block_id, key, parent)
    return keys


def test_block_zero_is_never_given_out():
    """All but the null block can be taken, each once."""
    pool = BlockPool(5)
    assert sorted(pool.get_new_blocks(4)) == [1, 2, 3, 4]
    assert NULL_BLOCK not in [1, 2, 3, 4]
    assert pool.free_blocks_count == 0
    assert pool.usage == 1.0


def test_a_pool_of_only_the_null_block_is_refused():
    """Nothing could ever be taken from it."""
    with pytest.raises(ValueError, match="at least 2"):
        BlockPool(1)


def test_taking_more_than_is_free_takes_nothing():
    """A failed allocation leaves the pool as it was."""
    pool = BlockPool(4)
    with pytest.raises(ValueError, match="4 blocks wanted, 3 free"):
        pool.get_new_blocks(4)
    assert pool.free_blocks_count == 3
    pool.check_integrity([])


def test_a_double_free_raises():
    """Trap 10: a block that nobody holds cannot be freed, and its count never goes below zero."""
    pool = BlockPool(4)
    (block_id,) = pool.get_new_blocks(1)
    pool.free_blocks([block_id])
    with pytest.raises(ValueError, match=f"block {block_id} is freed, but nobody holds it"):
        pool.free_blocks([block_id])
    pool.check_integrity([])


def test_the_null_block_cannot_be_freed():
    """A block table that names block 0 is broken."""
    with pytest.raises(ValueError, match="block 0 is freed"):
        BlockPool(4).free_blocks([NULL_BLOCK])


def test_blocks_without_content_are_used_again_before_cached_ones():
    """Trap 8: an unhashed block is prepended, a hashed one appended."""
    pool = BlockPool(4)
    cached, plain, other = pool.get_new_blocks(3)
    cache(pool, [cached])
    pool.free_blocks([cached])
    pool.free_blocks([plain, other])
    assert pool.get_new_blocks(3) == [other, plain, cached]


def test_the_tail_of_a_chain_is_evicted_before_its_head():
    """Trap 8: a table freed in reverse loses its last block first."""
    pool = BlockPool(4)
    table = pool.get_new_blocks(3)
    root, keys = build_keys(3)
    cache(pool, table)
    pool.free_blocks(reversed(table))
    assert pool.get_new_blocks(1) == [table[2]]
    assert pool.find(keys[0], root) is not None
    assert pool.find(keys[1], keys[0]) is not None
    assert pool.find(keys[2], keys[1]) is None


def test_the_least_recently_used_chain_goes_first():
    """A touched block moves to the end of the queue when it is freed again."""
    pool = BlockPool(3)
    old, young = pool.get_new_blocks(2)
    cache(pool, [old])
    cache(pool, [young], first=50)
    pool.free_blocks([old])
    pool.free_blocks([young])
    pool.touch([old])
    pool.free_blocks([old])
    assert pool.get_new_blocks(1) == [young]


def test_a_touched_block_is_held_until_everyone_has_freed_it():
    """Two holders: the block is free only after the second one."""
    pool = BlockPool(3)
    (block_id,) = pool.get_new_blocks(1)
    pool.touch([block_id])
    pool.free_blocks([block_id])
    assert pool.free_blocks_count == 1
    pool.check_integrity([[block_id]])
    pool.free_blocks([block_id])
    assert pool.free_blocks_count == 2


def test_a_freed_block_stays_findable_until_it_is_taken():
    """Free and cached are no opposites; taking the block forgets its content."""
    pool = BlockPool(2)
    (block_id,) = pool.get_new_blocks(1)
    root, _ = build_keys(1)
    (key,) = cache(pool, [block_id])
    pool.free_blocks([block_id])
    assert pool.find(key, root) == (block_id, key)
    pool.get_new_blocks(1)
    assert pool.find(key, root) is None
    assert pool.cached_blocks_count == 0


def test_copies_share_one_key():
    """Two prefills of one prompt: later blocks of either chain hang on the same key."""
    pool = BlockPool(5)
    one, other = pool.get_new_blocks(2), pool.get_new_blocks(2)
    cache(pool, one)
    cache(pool, other)
    assert pool.key_of(one[0]) is pool.key_of(other[0])
    assert pool.key_of(one[1]) is pool.key_of(other[1])
    assert pool.cached_blocks_count == 4


def test_evicting_forgets_content_and_frees_nothing():
    """After a failed load a held block goes on being held, but nobody finds it."""
    pool = BlockPool(3)
    (block_id,) = pool.get_new_blocks(1)
    root, (key,) = build_keys(1)
    cache(pool, [block_id])
    pool.evict([block_id, block_id])
    assert pool.find(key, root) is None
    pool.check_integrity([[block_id]])


def test_a_reset_is_refused_while_a_block_is_held():
    """Trap 14, case H-09: False, and nothing cleared; afterwards True, and everything cleared."""
    pool = BlockPool(3)
    table = pool.get_new_blocks(1)
    root, (key,) = build_keys(1)
    cache(pool, table)
    assert not pool.reset()
    assert pool.find(key, root) is not None
    pool.free_blocks(table)
    assert pool.reset()
    assert pool.find(key, root) is None
    assert pool.cached_blocks_count == 0
    pool.check_integrity([])


def test_hits_that_nobody_holds_count_as_free_blocks():
    """The caller must know how many free blocks its hits would use up."""
    pool = BlockPool(4)
    held, free = pool.get_new_blocks(2)
    cache(pool, [held, free])
    pool.free_blocks([free])
    assert pool.unheld([held, free]) == 1


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda pool: setattr(pool._blocks[0], "ref_count", 0), "block 0 was taken"),
        (lambda pool: setattr(pool._blocks[1], "ref_count", 1), "free and held, or neither"),
        (lambda pool: setattr(pool._blocks[1], "ref_count", -1), "-1 references"),
        (lambda pool: setattr(pool._blocks[1], "key", build_keys(1)[1][0]), "not mapped"),
    ],
)
def test_the_check_finds_a_broken_pool(damage, complaint):
    """Each kind of damage is named."""
    pool = BlockPool(4)
    damage(pool)
    with pytest.raises(AssertionError, match=complaint):
        pool.check_integrity()


def test_the_check_counts_references_against_the_tables():
    """A table that was forgotten, or counted twice, is found."""
    pool = BlockPool(4)
    table = pool.get_new_blocks(2)
    pool.check_integrity([table])
    with pytest.raises(AssertionError, match="1 references, 0 holders"):
        pool.check_integrity([])
    with pytest.raises(AssertionError, match="1 references, 2 holders"):
        pool.check_integrity([table, table])
