"""Block names as vLLM's sha256_cbor: its own check values, frozen vectors, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from backends.hashing import BlockHasher, BlockKey, pack, same_chain
from backends.vllm_hashing import NONE_HASH, VllmBlockHasher, cbor

PRINT_HASHES = """
from backends.hashing import pack
from backends.vllm_hashing import VllmBlockHasher
hasher = VllmBlockHasher(4)
for adapter, salt in ((None, None), ("lora@v1", None), (None, "s"), ("lora@v1", "s")):
    keys = []
    hasher.extend(keys, hasher.root(adapter=adapter, cache_salt=salt), pack(range(1, 9)))
    print(*(key.digest.hex() for key in keys))
"""


def keys_of(tokens, hasher=None, **extra) -> list[BlockKey]:
    hasher = hasher or VllmBlockHasher(4)
    keys: list[BlockKey] = []
    hasher.extend(keys, hasher.root(**extra), pack(tokens))
    return keys


def hashes(tokens, **extra) -> list[str]:
    return [key.digest.hex() for key in keys_of(tokens, **extra)]


def test_vllms_check_values_come_out():
    """vLLM 0.29 and later, measured there: the root, and the block (1, 2, 3, 4)."""
    assert NONE_HASH.hex().startswith("9bd96a48")
    assert hashes([1, 2, 3, 4])[0].startswith("58d0879d")


def test_the_hashes_are_frozen():
    """Case H-08: plain, and with both extra keys."""
    assert hashes(range(1, 9)) == [
        "58d0879dff3800f65f8c5fd449d73048c0f7699dd238a03b84b146b151d55111",
        "e1bc29393a2da9fd798f35ff04d215f846aee6df4b803ce3d43b57df56b58fb1",
    ]
    assert hashes(range(1, 9), adapter="lora@v1", cache_salt="s") == [
        "cde3439674261c914cce5000cee4c296192d9845301f8dd59fe97e98ea93ea99",
        "ced41e81c3a143e5328a093906a56deebc0929d4bf98708214be0a87fabbfe82",
    ]


@pytest.mark.parametrize("seed", ["random", "0", "1"])
def test_every_process_has_the_same_hashes(seed):
    """Case H-08, trap 4: PYTHONHASHSEED changes nothing, with and without adapter and salt."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_HASHES], env=environment, capture_output=True, text=True, check=True
    )
    extras = [{}, {"adapter": "lora@v1"}, {"cache_salt": "s"}, {"adapter": "lora@v1", "cache_salt": "s"}]
    assert printed.stdout.splitlines() == [" ".join(hashes(range(1, 9), **extra)) for extra in extras]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, "f6"),
        (0, "00"),
        (23, "17"),
        (24, "1818"),
        (255, "18ff"),
        (256, "190100"),
        (65_535, "19ffff"),
        (65_536, "1a00010000"),
        ((1 << 32) - 1, "1affffffff"),
        (b"\x01\x02", "420102"),
        ("a", "6161"),
        ("é", "62c3a9"),
        ((1, "a", None), "83016161f6"),
        (tuple(range(24)), "9818" + "".join(f"{number:02x}" for number in range(24))),
    ],
)
def test_cbor_is_canonical(value, encoded):
    """RFC 8949: every head as short as it can be."""
    assert cbor(value).hex() == encoded


def test_names_may_be_computed_bit_by_bit():
    """The salt enters the first block only, also when the second one is named later."""
    hasher = VllmBlockHasher(4)
    keys: list[BlockKey] = []
    root = hasher.root(adapter="a", cache_salt="s")
    for start in (0, 4, 8):
        hasher.extend(keys, root, pack(range(start, start + 4)))
    assert [key.digest.hex() for key in keys] == hashes(range(12), adapter="a", cache_salt="s")


def test_an_adapter_named_like_a_salt_shares_nothing_with_it():
    """Trap 2 (vllm#44701), in the tagged form."""
    names = ["x", "s", "x@s", "@", "lora", "cache_salt"]
    firsts = [
        *(hashes(range(4), adapter=name)[0] for name in names),
        *(hashes(range(4), cache_salt=name)[0] for name in names),
        *(hashes(range(4), adapter=one, cache_salt=other)[0] for one in names for other in names),
        hashes(range(4))[0],
    ]
    assert len(set(firsts)) == len(firsts)


def test_chains_are_compared_by_tokens_and_extra_keys():
    """What is found is compared, whatever named it; two ways of naming agree on what is the same."""
    ours = keys_of(range(8), BlockHasher(4), cache_salt="s")
    theirs = keys_of(range(8), cache_salt="s")
    assert same_chain(ours[1], theirs[1])
    assert not same_chain(ours[1], keys_of(range(8), cache_salt="t")[1])
    assert ours[1].digest != theirs[1].digest


def test_nothing_is_kept_for_a_partial_block():
    """Full blocks only."""
    assert len(keys_of(range(11))) == 2
    assert keys_of(range(3)) == []
