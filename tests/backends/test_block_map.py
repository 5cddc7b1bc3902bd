"""The map from digests to blocks: copies, collisions, and blocks whose parents were computed anew."""

from __future__ import annotations

import pytest

from backends.block_map import BlockMap
from backends.free_queue import Block
from backends.hashing import BlockHasher, BlockKey, pack


def build_keys(tokens, digest=None, **extra) -> tuple[BlockKey, list[BlockKey]]:
    hasher = BlockHasher(2, digest)
    keys: list[BlockKey] = []
    root = hasher.root(**extra)
    hasher.extend(keys, root, pack(tokens))
    return root, keys


def test_a_block_is_found_by_an_equal_key():
    """Two requests compute their keys apart and find each other's blocks."""
    blocks, block = BlockMap(), Block(1)
    blocks.insert(block, build_keys([1, 2])[1][0])
    root, (key,) = build_keys([1, 2])
    assert blocks.find(key, root) is block


def test_a_removed_block_is_not_found():
    """What was forgotten is a miss, and the map is empty again."""
    blocks, block = BlockMap(), Block(1)
    root, (key,) = build_keys([1, 2])
    blocks.insert(block, key)
    blocks.remove(block)
    assert blocks.find(key, root) is None
    assert list(blocks) == []
    assert block.key is None


def test_removing_one_copy_keeps_the_others():
    """Trap 9: three blocks of one content; the last one is found when two are gone."""
    blocks, copies = BlockMap(), [Block(1), Block(2), Block(3)]
    root, (key,) = build_keys([1, 2])
    for block in copies:
        blocks.insert(block, key)
    blocks.remove(copies[0])
    blocks.remove(copies[2])
    assert blocks.find(key, root) is copies[1]
    assert blocks.count == 1
    assert not list(blocks.faults())


def test_blocks_of_one_digest_and_different_tokens_are_told_apart():
    """A broken digest finds candidates; only one with the right tokens is a hit."""
    blocks, one, other = BlockMap(), Block(1), Block(2)
    root, (key_one,) = build_keys([1, 2], lambda data: b"x")
    _, (key_other,) = build_keys([3, 4], lambda data: b"x")
    _, (key_third,) = build_keys([5, 6], lambda data: b"x")
    blocks.insert(one, key_one)
    assert blocks.find(key_other, root) is None
    blocks.insert(other, key_other)
    assert blocks.find(key_one, root) is one
    assert blocks.find(key_other, root) is other
    assert blocks.find(key_third, root) is None


def test_equal_tokens_after_another_beginning_are_no_hit():
    """Trap 3: the parent is compared too, for its K/V depends on all that came before."""
    blocks, block = BlockMap(), Block(1)
    _, keys = build_keys([1, 1, 5, 6], lambda data: b"x")
    _, others = build_keys([2, 2, 5, 6], lambda data: b"x")
    blocks.insert(block, keys[1])
    assert blocks.find(others[1], others[0]) is None
    assert blocks.find(keys[1], keys[0]) is block


def test_a_child_is_found_again_after_its_parent_was_computed_anew():
    """An equal chain of other key objects is equal, and is adopted for the next look-up."""
    blocks, child = BlockMap(), Block(1)
    _, keys = build_keys([1, 1, 5, 6])
    _, anew = build_keys([1, 1, 5, 6])
    blocks.insert(child, keys[1])
    assert blocks.find(anew[1], anew[0]) is child
    assert child.key is not None
    assert child.key.parent is anew[0]


def test_a_block_cannot_be_cached_twice_or_forgotten_twice():
    """Both are errors of the caller and say which block."""
    blocks, block = BlockMap(), Block(1)
    _, (key,) = build_keys([1, 2])
    blocks.insert(block, key)
    with pytest.raises(ValueError, match="block 1 is cached already"):
        blocks.insert(block, key)
    blocks.remove(block)
    with pytest.raises(ValueError, match="block 1 is not cached"):
        blocks.remove(block)


def test_a_block_under_a_foreign_digest_is_found_by_the_check():
    """The check compares each block's key with the digest it stands under."""
    blocks, block = BlockMap(), Block(1)
    blocks.insert(block, build_keys([1, 2])[1][0])
    block.key = build_keys([3, 4])[1][0]
    blocks.count = 2
    assert len(list(blocks.faults())) == 2
