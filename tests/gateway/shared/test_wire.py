"""The wire: what is packed is read back; whatever is not exactly that is refused with a reason, and never a crash."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.shared.wire import BATCH_BYTES, Batch, Ended, NotOurs, Placed, Started, pack, placed_bytes, unpack
from tests.gateway.shared.builders import KEY, build_batch, build_placed

marks = st.binary(min_size=8, max_size=8)
blocks = st.binary(min_size=16, max_size=16)
numbers = st.integers(0, 2**64 - 1)
seconds = st.floats(0, 1e6, width=32)
placements = st.builds(
    Placed,
    model=marks,
    number=numbers,
    worker=marks,
    prefill_seconds=seconds,
    age_seconds=seconds,
    prompt_tokens=st.integers(0, 2**32 - 1),
    silent=st.booleans(),
    known=st.none() | blocks,
    blocks=st.lists(blocks, max_size=5),
)
items = st.lists(placements | st.builds(Started, numbers) | st.builds(Ended, numbers), max_size=8)
batches = st.builds(
    Batch, marks, numbers, st.integers(0, 2**32 - 1), items, afresh=st.booleans(), leaving=st.booleans()
)


def reason(value: bytes, key: bytes = KEY) -> str:
    with pytest.raises(NotOurs) as caught:
        unpack(value, key)
    return caught.value.reason


@given(batches, st.binary(max_size=64))
def test_every_batch_comes_back_as_it_was(batch, key):
    """Packing and unpacking are inverse, for any key."""
    assert unpack(pack(batch, key), key) == batch


@given(batches, st.data())
def test_a_changed_byte_is_found(batch, data):
    """Not one bit of a batch can be changed by who has no key."""
    value = bytearray(pack(batch, KEY))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] ^= data.draw(st.integers(1, 255))
    assert reason(bytes(value)) == ("version" if place == 0 else "forged")


@given(st.binary(max_size=400))
def test_noise_is_refused(noise):
    """Whatever stands in Redis, reading it raises NotOurs and nothing else."""
    assert reason(noise) in ("malformed", "version", "forged")


@given(batches, st.data())
def test_noise_with_a_right_seal_is_read_or_refused(batch, data):
    """Without a secret anybody can seal: the reading itself must be strict, too."""
    body = bytearray(pack(batch, b"")[:-16])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(1, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(body)))
    sealed = seal(bytes(body[:cut]))
    try:
        found = unpack(sealed, b"")
    except NotOurs:
        return
    assert unpack(pack(found, b""), b"") == found


def seal(body: bytes) -> bytes:
    from hashlib import blake2b

    return body + blake2b(body, digest_size=16, person=b"homing news v1").digest()


def test_another_secret_reads_nothing():
    """Two fleets on one Redis, or an attacker with Redis' password only."""
    value = pack(build_batch(Ended(1)), KEY)
    assert reason(value, b"other" * 8) == "forged"
    assert reason(value, b"") == "forged"


def test_a_value_that_is_too_long_is_not_even_hashed():
    """The bound is checked first."""
    assert reason(b"\x01" * (BATCH_BYTES + 1)) == "oversized"


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_seconds_that_cannot_be_are_refused(bad):
    """A NaN in a virtual queue would make every comparison false."""
    assert reason(pack(build_batch(build_placed(prefill_seconds=bad)), KEY)) == "malformed"
    assert reason(pack(build_batch(build_placed(age_seconds=bad)), KEY)) == "malformed"


def test_a_count_of_blocks_beyond_the_end_is_refused():
    """A length field is not believed."""
    body = bytearray(pack(build_batch(build_placed(blocks=[b"b" * 16])), b"")[:-16])
    at = len(body) - 16 - 2
    assert struct.unpack_from("<H", body, at) == (1,)
    struct.pack_into("<H", body, at, 2)
    assert reason(seal(bytes(body)), b"") == "malformed"


def test_a_model_that_is_not_in_the_table_is_refused():
    """An index out of range is malformed, not an IndexError."""
    body = bytearray(pack(build_batch(build_placed()), b"")[:-16])
    body[body.index(b"\x01\x00\x00", 30) + 1] = 9
    assert reason(seal(bytes(body)), b"") == "malformed"


def test_a_placement_is_small():
    """Sixteen bytes for each new block, some forty for the rest; the batch adds about as much."""
    assert placed_bytes(0) <= 56
    assert len(pack(build_batch(build_placed(blocks=[b"b" * 16] * 10)), KEY)) <= 160 + 100
