"""Each GGUF encoding against the reader of ggml's own Python package, and the types that are refused."""

from __future__ import annotations

import random
import struct

import gguf
import numpy as np
import pytest

from backends.model.config import ModelRefusedError
from backends.model.quantisation import ENCODINGS, GGML_TYPE_NAMES, encoding_of

BLOCKS = 5


HALVES = {1: (0,), 2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 12: (0, 2), 13: (0, 2), 14: (208,)}
"""ggml type → where a block's half-precision numbers lie, in bytes."""


def build_blocks(ggml_type: int, source: random.Random) -> bytes:
    """Random bytes whose half-precision numbers are finite."""
    encoding = ENCODINGS[ggml_type]
    if ggml_type in (0, 30):
        floats = struct.pack(f"<{BLOCKS}f", *(source.gauss(0, 3) for _ in range(BLOCKS)))
        return floats if ggml_type == 0 else b"".join(floats[at + 2 : at + 4] for at in range(0, len(floats), 4))
    blocks = [bytearray(source.randbytes(encoding.block_bytes)) for _ in range(BLOCKS)]
    for block in blocks:
        for at in HALVES[ggml_type]:
            struct.pack_into("<e", block, at, source.gauss(0, 0.1))
    return b"".join(blocks)


@pytest.mark.parametrize("ggml_type", ENCODINGS, ids=GGML_TYPE_NAMES.get)
def test_numbers_are_those_of_ggml(ggml_type: int):
    """Random blocks, bit for bit."""
    raw = np.frombuffer(build_blocks(ggml_type, random.Random(ggml_type)), np.uint8)
    got = ENCODINGS[ggml_type].decode(raw)
    assert got.dtype == np.float32
    assert len(got) == BLOCKS * ENCODINGS[ggml_type].block_elements
    assert np.array_equal(got, gguf.dequantize(raw, gguf.GGMLQuantizationType(ggml_type)).reshape(-1))


@pytest.mark.parametrize("ggml_type", [1, 2, 3, 6, 7, 8, 30], ids=GGML_TYPE_NAMES.get)
def test_what_ggml_quantised_comes_back(ggml_type: int):
    """Numbers as in a model: what comes back is as near as the type's bits allow."""
    numbers = np.random.default_rng(ggml_type).normal(0, 0.05, (BLOCKS, 64)).astype(np.float32)
    raw = gguf.quantize(numbers, gguf.GGMLQuantizationType(ggml_type))
    got = ENCODINGS[ggml_type].decode(np.ascontiguousarray(raw).view(np.uint8).reshape(-1)).reshape(BLOCKS, 64)
    step = {2: 1 / 8, 3: 1 / 15, 6: 1 / 16, 7: 1 / 31, 8: 1 / 127}.get(ggml_type, 2**-8) * np.abs(numbers).max()
    assert np.abs(got - numbers).max() <= step


@pytest.mark.parametrize("ggml_type", ENCODINGS, ids=GGML_TYPE_NAMES.get)
def test_sizes_are_whole_blocks(ggml_type: int):
    """A tensor that ends inside a block is refused."""
    encoding = ENCODINGS[ggml_type]
    assert encoding.size_bytes(3 * encoding.block_elements) == 3 * encoding.block_bytes
    if encoding.block_elements > 1:
        with pytest.raises(ModelRefusedError, match="whole number of blocks"):
            encoding.size_bytes(encoding.block_elements + 1)


@pytest.mark.parametrize(("ggml_type", "name"), [(10, "Q2_K"), (11, "Q3_K"), (39, "MXFP4"), (99, "type 99")])
def test_an_unknown_quantisation_is_refused_by_name(ggml_type: int, name: str):
    """The message says which tensor, which type, and what would do."""
    with pytest.raises(ModelRefusedError, match=rf"'blk.0.attn_q.weight' is quantised as {name}.*Q4_1"):
        encoding_of(ggml_type, "blk.0.attn_q.weight")
