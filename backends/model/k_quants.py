"""GGUF's K-quants turned into float32: blocks of 256 numbers whose parts have small scales of their own.

Block layouts: https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h (`block_q4_K` and its neighbours).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

BLOCK_ELEMENTS = 256
Q4_K = np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("parts", "u1", 12), ("pairs", "u1", (4, 32))])
Q5_K = np.dtype(
    [("scale", "<f2"), ("minimum", "<f2"), ("parts", "u1", 12), ("high", "u1", 32), ("pairs", "u1", (4, 32))]
)
Q6_K = np.dtype([("pairs", "u1", (2, 64)), ("high", "u1", (2, 32)), ("parts", "i1", 16), ("scale", "<f2")])


def q4_k(raw: Bytes) -> Floats:
    """8 parts of 32 nibbles, each with a scale and a minimum."""
    blocks = raw.view(Q4_K)
    return _scaled(blocks, _nibbles(blocks["pairs"]))


def q5_k(raw: Bytes) -> Floats:
    """As `q4_k`, with a fifth bit: bit n of byte i belongs to number i of part n."""
    blocks = raw.view(Q5_K)
    high = _bits(blocks["high"][:, None], np.arange(8), 1)
    return _scaled(blocks, _nibbles(blocks["pairs"]) | (high << np.uint8(4)))


def q6_k(raw: Bytes) -> Floats:
    """Two halves of 128 numbers: 4 low bits, 2 high bits, 32 in the middle; 16 parts of 16 numbers with a scale each.

    A half's 64 bytes hold the low bits of numbers 0 to 63, then, in their upper nibbles, of 64 to 127; its 32 bytes
    of high bits hold those of four runs of 32 numbers.
    """
    blocks = raw.view(Q6_K)
    low = _bits(blocks["pairs"][:, :, None], np.array([0, 4]), 15).reshape(-1, 8, 32)
    high = _bits(blocks["high"][:, :, None], np.array([0, 2, 4, 6]), 3).reshape(-1, 8, 32)
    numbers = (low | (high << np.uint8(4))).reshape(-1, 16, 16).astype(np.float32)
    numbers -= 32.0
    numbers *= (_column(blocks["scale"]) * blocks["parts"].astype(np.float32))[:, :, None]
    return numbers.reshape(-1)


def _scaled(blocks: NDArray[np.void], numbers: Bytes) -> Floats:
    """8 parts of 32 `numbers` a block, times each part's scale, less its minimum."""
    scales, minima = _part_scales(blocks["parts"])
    out = numbers.astype(np.float32)
    out *= (_column(blocks["scale"]) * scales)[:, :, None]
    out -= (_column(blocks["minimum"]) * minima)[:, :, None]
    return out.reshape(-1)


def _part_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """The 8 scales and 8 minima of 6 bits in 12 bytes.

    The first four of each are the low bits of bytes 0 to 3 and 4 to 7; the others have their low four bits in a
    nibble of bytes 8 to 11, and their high two in what the first ones left over.
    """
    first, second, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (low & 15) | (first >> 6 << 4)], axis=1)
    minima = np.concatenate([second & 63, (low >> 4) | (second >> 6 << 4)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _nibbles(pairs: Bytes) -> Bytes:
    """[blocks, 4, 32] bytes as [blocks, 8, 32] numbers: the low nibbles of 32 bytes, then their high ones."""
    return _bits(pairs[:, :, None], np.array([0, 4]), 15).reshape(-1, 8, 32)


def _bits(packed: Bytes, shifts: NDArray[np.int64], mask: int) -> Bytes:
    """`packed` [..., 1, bytes] shifted right by each of `shifts` [n] → [..., n, bytes]."""
    return (packed >> shifts.astype(np.uint8)[:, None]) & np.uint8(mask)


def _column(halves: NDArray[np.float16]) -> Floats:
    return halves.astype(np.float32)[:, None]
