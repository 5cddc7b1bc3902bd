"""How a block looks outside the process: what is whole and ours opens, everything else does not."""

from __future__ import annotations

import random

import pytest

from backends.hashing import BlockHasher, BlockKey
from backends.tiers.entry import BrokenEntryError, Named, name_of, named
from tests.backends.core_builders import short_digest
from tests.backends.tiers.builders import build_chain, build_entries, build_keys, payload_of


def build_entry(block: Named, **settings) -> bytes:
    return build_entries(**settings).seal(block, payload_of(block)) + payload_of(block)


def test_what_was_sealed_opens_to_the_same_bytes():
    """The payload comes back without a copy."""
    block = build_chain(3)[2]
    payload = build_entries().open(block, build_entry(block))
    assert bytes(payload) == payload_of(block)
    assert isinstance(payload, memoryview)


def test_a_first_block_has_the_salts_root_for_a_parent():
    """Equal tokens under another salt are another block."""
    mine, theirs = build_chain(1, salt="a")[0], build_chain(1, salt="b")[0]
    assert mine.key.tokens == theirs.key.tokens
    with pytest.raises(BrokenEntryError, match="another block"):
        build_entries().open(theirs, build_entry(mine))


def test_any_flipped_bit_is_noticed():
    """Every bit of the header and the tokens, and of the payload at its borders and in between."""
    block = build_chain(2)[1]
    entry = build_entry(block)
    payload_start = len(entry) - len(payload_of(block))
    inside = random.Random(0).sample(range(payload_start * 8, len(entry) * 8), 200)
    for bit in (*range(payload_start * 8), payload_start * 8, len(entry) * 8 - 1, *inside):
        broken = bytearray(entry)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BrokenEntryError):
            build_entries().open(block, bytes(broken))


def test_any_other_length_is_noticed():
    """Cut anywhere, empty, or longer."""
    block = build_chain(1)[0]
    entry = build_entry(block)
    for length in range(len(entry)):
        with pytest.raises(BrokenEntryError):
            build_entries().open(block, entry[:length])
    with pytest.raises(BrokenEntryError):
        build_entries().open(block, entry + b"\0")


@pytest.mark.parametrize("change", [{"digest": "ba9876543210"}, {"payload_bytes": 199}])
def test_an_entry_of_another_config_does_not_open(change: dict):
    """Another model, or blocks of another size."""
    block = build_chain(1)[0]
    entries = build_entries(**change)
    payload = payload_of(block, entries.payload_bytes)
    with pytest.raises(BrokenEntryError):
        build_entries().open(block, entries.seal(block, payload) + payload)


def test_another_blocks_entry_does_not_open():
    """Neither the block before it, nor one with equal tokens after another beginning, nor one with other tokens."""
    first, second = build_chain(2)
    with pytest.raises(BrokenEntryError):
        build_entries().open(second, build_entry(first))
    other = build_chain(2, salt="x")[1]
    assert other.key.tokens == second.key.tokens
    with pytest.raises(BrokenEntryError):
        build_entries().open(second, build_entry(other))
    sibling = Named(BlockKey(second.key.digest, first.key, b"x" * len(second.key.tokens)), second.name)
    with pytest.raises(BrokenEntryError):
        build_entries().open(second, build_entry(sibling))


def test_the_error_tells_nothing_of_the_content():
    """Not a token, not a name."""
    first, second = build_chain(2)
    with pytest.raises(BrokenEntryError) as caught:
        build_entries().open(second, build_entry(first))
    assert second.name.hex() not in str(caught.value)
    assert second.key.tokens.hex() not in str(caught.value)


def test_a_sha256_digest_is_the_name():
    """It covers the whole chain already."""
    assert [block.name for block in build_chain(3)] == [key.digest for key in build_keys(3)]


def test_a_short_digest_does_not_name_a_block():
    """A hash of 2 bits collides all the time; the names do not."""
    hasher = BlockHasher(4, short_digest(2))
    blocks = [block for seed in range(50) for block in named(build_keys(4, seed, hasher=hasher))]
    assert len({block.key.digest for block in blocks}) <= 4
    assert len({block.name for block in blocks}) == len(blocks)


def test_names_by_short_digests_are_the_same_for_equal_chains():
    """And differ by salt, also where every token is equal."""
    hasher = BlockHasher(4, short_digest(2))
    one, other = build_keys(3, hasher=hasher), build_keys(3, hasher=hasher)
    assert [name_of(key) for key in one] == [name_of(key) for key in other]
    assert name_of(build_keys(3, salt="a", hasher=hasher)[2]) != name_of(one[2])
