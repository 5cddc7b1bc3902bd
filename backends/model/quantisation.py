"""GGUF's tensor encodings turned into float32, one small function each.

Block layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h (`block_q4_0` and its neighbours).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backends.model import k_quants
from backends.model.config import ModelRefusedError

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

GGML_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
"""Names for error messages; only the types of `ENCODINGS` are read."""

_Q4_0 = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
_Q4_1 = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("pairs", "u1", 16)])
_Q5_0 = np.dtype([("scale", "<f2"), ("high", "u1", 4), ("pairs", "u1", 16)])
_Q5_1 = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("high", "u1", 4), ("pairs", "u1", 16)])
_Q8_0 = np.dtype([("scale", "<f2"), ("values", "i1", 32)])


class Encoding(NamedTuple):
    """How one ggml type is laid out: `block_elements` numbers in `block_bytes` bytes, and the way back to floats."""

    block_elements: int
    block_bytes: int
    decode: Callable[[Bytes], Floats]

    def size_bytes(self, elements: int) -> int:
        """Bytes that `elements` numbers take; ModelRefusedError when they are no whole number of blocks."""
        blocks, rest = divmod(elements, self.block_elements)
        if rest:
            raise ModelRefusedError(f"{elements} elements are no whole number of blocks of {self.block_elements}")
        return blocks * self.block_bytes


def encoding_of(ggml_type: int, tensor_name: str) -> Encoding:
    """The encoding of a ggml type; ModelRefusedError names the type and the tensor when it is not supported."""
    encoding = ENCODINGS.get(ggml_type)
    if encoding is None:
        name = GGML_TYPE_NAMES.get(ggml_type, f"type {ggml_type}")
        known = ", ".join(GGML_TYPE_NAMES[known_type] for known_type in ENCODINGS)
        raise ModelRefusedError(f"tensor {tensor_name!r} is quantised as {name}, which is not read here (only {known})")
    return encoding


def _f32(raw: Bytes) -> Floats:
    return raw.view("<f4").astype(np.float32)


def _f16(raw: Bytes) -> Floats:
    return raw.view("<f2").astype(np.float32)


def _bf16(raw: Bytes) -> Floats:
    """A bfloat16 is the upper half of a float32."""
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q8_0(raw: Bytes) -> Floats:
    """32 signed bytes times a half-precision scale."""
    blocks = raw.view(_Q8_0)
    scaled = blocks["values"].astype(np.float32)
    scaled *= _column(blocks["scale"])
    return scaled.reshape(-1)


def _q4_0(raw: Bytes) -> Floats:
    """32 nibbles, 8 in the middle, times a scale."""
    blocks = raw.view(_Q4_0)
    scaled = _nibbles(blocks["pairs"])
    scaled -= 8.0
    scaled *= _column(blocks["scale"])
    return scaled.reshape(-1)


def _q4_1(raw: Bytes) -> Floats:
    """32 nibbles times a scale, plus a minimum."""
    blocks = raw.view(_Q4_1)
    scaled = _nibbles(blocks["pairs"])
    scaled *= _column(blocks["scale"])
    scaled += _column(blocks["minimum"])
    return scaled.reshape(-1)


def _q5_0(raw: Bytes) -> Floats:
    """As `_q4_0`, with a fifth bit, 16 in the middle."""
    blocks = raw.view(_Q5_0)
    scaled = _nibbles(blocks["pairs"]) + _fifth_bits(blocks["high"])
    scaled -= 16.0
    scaled *= _column(blocks["scale"])
    return scaled.reshape(-1)


def _q5_1(raw: Bytes) -> Floats:
    """As `_q4_1`, with a fifth bit."""
    blocks = raw.view(_Q5_1)
    scaled = _nibbles(blocks["pairs"]) + _fifth_bits(blocks["high"])
    scaled *= _column(blocks["scale"])
    scaled += _column(blocks["minimum"])
    return scaled.reshape(-1)


def _fifth_bits(high: Bytes) -> Floats:
    """A bit for each of a block's 32 numbers, worth 16."""
    return np.unpackbits(high, axis=1, bitorder="little").astype(np.float32) * np.float32(16.0)


def _nibbles(pairs: Bytes) -> Floats:
    """A block's 16 low nibbles come first, then its 16 high ones."""
    return np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.float32)


def _column(halves: NDArray[np.float16]) -> Floats:
    return halves.astype(np.float32)[:, None]


ENCODINGS: dict[int, Encoding] = {
    0: Encoding(1, 4, _f32),
    1: Encoding(1, 2, _f16),
    30: Encoding(1, 2, _bf16),
    8: Encoding(32, _Q8_0.itemsize, _q8_0),
    2: Encoding(32, _Q4_0.itemsize, _q4_0),
    3: Encoding(32, _Q4_1.itemsize, _q4_1),
    6: Encoding(32, _Q5_0.itemsize, _q5_0),
    7: Encoding(32, _Q5_1.itemsize, _q5_1),
    12: Encoding(k_quants.BLOCK_ELEMENTS, k_quants.Q4_K.itemsize, k_quants.q4_k),
    13: Encoding(k_quants.BLOCK_ELEMENTS, k_quants.Q5_K.itemsize, k_quants.q5_k),
    14: Encoding(k_quants.BLOCK_ELEMENTS, k_quants.Q6_K.itemsize, k_quants.q6_k),
}
"""ggml type → encoding, for every type that is read here."""
