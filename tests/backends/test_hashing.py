"""Block names: frozen vectors, the same in every process, and no value imitating another."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array

import pytest

from backends.hashing import NONE_HASH, BlockHasher, BlockKey, pack, same_chain

PRINT_HASHES = """
from backends.hashing import BlockHasher, pack
hasher = BlockHasher(4)
for adapter, salt in ((None, None), ("lora@v1", None), (None, "s"), ("lora@v1", "s")):
    keys = []
    hasher.extend(keys, hasher.root(adapter=adapter, cache_salt=salt), pack(range(1, 9)))
    print(*(key.digest.hex() for key in keys))
"""


def hashes(tokens, block_tokens=4, **extra) -> list[bytes]:
    hasher = BlockHasher(block_tokens)
    keys: list[BlockKey] = []
    hasher.extend(keys, hasher.root(**extra), pack(tokens))
    return [key.digest for key in keys]


def test_the_hashes_are_frozen():
    """Case H-08: a change of these vectors is a change of the hash, and needs a new number in NONE_HASH."""
    assert NONE_HASH.hex() == "dc656f4401b0c2f1f900daf7009db75ef2ea0189417807752a49fb55779f54f9"
    assert [h.hex() for h in hashes(range(1, 9))] == [
        "9e2f366fb56bf70293a9b8201fc333aa2c83880694dec5d55610ad418abffc65",
        "b999156849f61acb12c9fb3cf380db1c957ed7da9b1e49015f83cf56c3004854",
    ]
    assert [h.hex() for h in hashes(range(1, 5), adapter="lora@v1", cache_salt="s")] == [
        "87da1906acf4a6c27a263d99df323c664b3657e01497403b1cc406167d60e5f1"
    ]


@pytest.mark.parametrize("seed", ["random", "0", "1"])
def test_every_process_has_the_same_hashes(seed):
    """Case H-08, trap 4: PYTHONHASHSEED changes nothing, with and without adapter and salt."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_HASHES], env=environment, capture_output=True, text=True, check=True
    )
    extras = [{}, {"adapter": "lora@v1"}, {"cache_salt": "s"}, {"adapter": "lora@v1", "cache_salt": "s"}]
    expected = [" ".join(h.hex() for h in hashes(range(1, 9), **extra)) for extra in extras]
    assert printed.stdout.splitlines() == expected


def test_only_full_blocks_have_a_name():
    """Nine tokens are two blocks of four and one token that has no name yet."""
    assert hashes(range(9)) == hashes(range(8))
    assert hashes(range(3)) == []


def test_a_block_is_named_after_everything_before_it():
    """The same tokens after another beginning are another block."""
    assert hashes([1, 1, 1, 1, 5, 6, 7, 8])[1] != hashes([2, 2, 2, 2, 5, 6, 7, 8])[1]


def test_names_may_be_computed_bit_by_bit():
    """Naming four tokens and then the next four is naming eight."""
    hasher = BlockHasher(4)
    keys: list[BlockKey] = []
    root = hasher.root()
    hasher.extend(keys, root, pack(range(4)))
    hasher.extend(keys, root, pack(range(4, 8)))
    assert [key.digest for key in keys] == hashes(range(8))


def test_an_adapter_named_like_a_salt_shares_nothing_with_it():
    """Trap 2 (vllm#44701): extra keys are tagged and length-prefixed."""
    names = ["x", "xx", "", "x;cache_salt=1:x", "11:x"]
    roots = [
        *(hashes(range(4), adapter=name)[0] for name in names),
        *(hashes(range(4), cache_salt=name)[0] for name in names),
        *(hashes(range(4), adapter=one, cache_salt=other)[0] for one in names for other in names),
        hashes(range(4))[0],
    ]
    assert len(set(roots)) == len(roots)


def test_a_salt_changes_every_block_through_the_first():
    """Trap 1: the salt enters the first block only, and the chain carries it on."""
    plain, salted = hashes(range(12)), hashes(range(12), cache_salt="tenant")
    assert not set(plain) & set(salted)
    assert salted == hashes(range(12), cache_salt="tenant")


def test_a_salt_may_be_any_text():
    """Lone surrogates come through JSON; they are hashed like any other character."""
    assert hashes(range(4), cache_salt="\ud800") != hashes(range(4), cache_salt="\ud801")


def test_tokens_are_packed_as_little_endian_words():
    """The bytes are those of the wire and of the router's block hash."""
    assert pack([1, 258]) == bytes([1, 0, 0, 0, 2, 1, 0, 0])
    assert pack(array("I", [7])) == pack((7,))


def test_a_token_beyond_32_bits_cannot_be_packed():
    """A wrong id is an error and never another id."""
    with pytest.raises(OverflowError):
        pack([1 << 32])


def test_equal_chains_are_the_same_whatever_their_digests():
    """Chains are compared by tokens and extra keys, so a broken digest cannot make two equal."""
    broken = BlockHasher(4, lambda data: b"x")
    one: list[BlockKey] = []
    other: list[BlockKey] = []
    broken.extend(one, broken.root(cache_salt="a"), pack(range(8)))
    broken.extend(other, broken.root(cache_salt="b"), pack(range(8)))
    again: list[BlockKey] = []
    broken.extend(again, broken.root(cache_salt="a"), pack(range(8)))
    assert one[1].digest == other[1].digest
    assert not same_chain(one[1], other[1])
    assert same_chain(one[1], again[1])
    assert not same_chain(one[1], one[0])
