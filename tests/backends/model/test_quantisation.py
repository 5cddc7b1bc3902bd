"""Each GGUF encoding against a decoder that reads one number at a time, straight from the format's description."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import numpy as np
import pytest

from backends.model.config import ModelRefusedError
from backends.model.quantisation import ENCODINGS, GGML_TYPE_NAMES, encoding_of

BLOCKS = 5


def half(raw: bytes, at: int) -> float:
    return struct.unpack_from("<e", raw, at)[0]


def nibble(raw: bytes, index: int) -> int:
    """Number `index` of 32: the first 16 are low halves of the bytes, the others high halves."""
    return raw[index] & 15 if index < 16 else raw[index - 16] >> 4


def plain_f32(raw: bytes) -> list[float]:
    return [number for (number,) in struct.iter_unpack("<f", raw)]


def plain_f16(raw: bytes) -> list[float]:
    return [number for (number,) in struct.iter_unpack("<e", raw)]


def plain_bf16(raw: bytes) -> list[float]:
    return [struct.unpack("<f", b"\0\0" + raw[at : at + 2])[0] for at in range(0, len(raw), 2)]


def plain_q8_0(raw: bytes) -> list[float]:
    out = []
    for at in range(0, len(raw), 34):
        scale, numbers = half(raw, at), struct.unpack_from("<32b", raw, at + 2)
        out += [scale * number for number in numbers]
    return out


def plain_q4_0(raw: bytes) -> list[float]:
    out = []
    for at in range(0, len(raw), 18):
        out += [half(raw, at) * (nibble(raw[at + 2 : at + 18], index) - 8) for index in range(32)]
    return out


def plain_q4_1(raw: bytes) -> list[float]:
    out = []
    for at in range(0, len(raw), 20):
        scale, minimum = half(raw, at), half(raw, at + 2)
        out += [scale * nibble(raw[at + 4 : at + 20], index) + minimum for index in range(32)]
    return out


PLAIN: dict[int, Callable[[bytes], list[float]]] = {
    0: plain_f32, 1: plain_f16, 30: plain_bf16, 8: plain_q8_0, 2: plain_q4_0, 3: plain_q4_1,
}  # fmt: skip
HALVES_IN_A_BLOCK = {0: 0, 1: 1, 30: 0, 8: 1, 2: 1, 3: 2}


def build_blocks(ggml_type: int, source: random.Random) -> bytes:
    """Random blocks whose leading half-precision numbers are finite."""
    encoding = ENCODINGS[ggml_type]
    if ggml_type == 0:
        return struct.pack(f"<{BLOCKS}f", *(source.gauss(0, 3) for _ in range(BLOCKS)))
    out = b""
    for _ in range(BLOCKS):
        head = struct.pack("<2e", source.gauss(0, 0.1), source.gauss(0, 1))[: 2 * HALVES_IN_A_BLOCK[ggml_type]]
        out += head + source.randbytes(encoding.block_bytes - len(head))
    return out


@pytest.mark.parametrize("ggml_type", ENCODINGS, ids=GGML_TYPE_NAMES.get)
def test_numbers_are_those_of_the_format(ggml_type: int):
    """Bit for bit up to the rounding of one float32 operation."""
    raw = build_blocks(ggml_type, random.Random(ggml_type))
    got = ENCODINGS[ggml_type].decode(np.frombuffer(raw, np.uint8))
    assert got.dtype == np.float32
    assert len(got) == BLOCKS * ENCODINGS[ggml_type].block_elements
    np.testing.assert_allclose(got, PLAIN[ggml_type](raw), rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("ggml_type", ENCODINGS, ids=GGML_TYPE_NAMES.get)
def test_sizes_are_whole_blocks(ggml_type: int):
    """A tensor that ends inside a block is refused."""
    encoding = ENCODINGS[ggml_type]
    assert encoding.size_bytes(3 * encoding.block_elements) == 3 * encoding.block_bytes
    if encoding.block_elements > 1:
        with pytest.raises(ModelRefusedError, match="whole number of blocks"):
            encoding.size_bytes(encoding.block_elements + 1)


@pytest.mark.parametrize(("ggml_type", "name"), [(12, "Q4_K"), (14, "Q6_K"), (39, "MXFP4"), (99, "type 99")])
def test_an_unknown_quantisation_is_refused_by_name(ggml_type: int, name: str):
    """The message says which tensor, which type, and what would do."""
    with pytest.raises(ModelRefusedError, match=rf"'blk.0.attn_q.weight' is quantised as {name}.*Q4_1"):
        encoding_of(ggml_type, "blk.0.attn_q.weight")
