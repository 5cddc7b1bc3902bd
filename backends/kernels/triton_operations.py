"""The small operations of a step on a GPU, in Triton: norm, rotation with the cache write, and gate."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_rms_norm(
    residual: tl.tensor, update: tl.tensor, weight: tl.tensor, out: tl.tensor, epsilon: tl.tensor,
    width: tl.constexpr, padded_width: tl.constexpr, adds: tl.constexpr,
) -> None:  # fmt: skip
    """Grid (T): one row of `residual` [T, width] float32 plus, where it `adds`, the row of `update`; then its norm."""
    column = tl.arange(0, padded_width)
    inside = column < width
    at = tl.program_id(0).to(tl.int64) * width + column
    row = tl.load(residual + at, mask=inside, other=0.0)
    if adds:
        row += tl.load(update + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + at, row, mask=inside)
    normed = row / tl.sqrt(tl.sum(row * row, 0) / width + epsilon)
    tl.store(out + at, normed * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32), mask=inside)


@triton.jit
def rotate_heads(
    source: tl.tensor, target: tl.tensor, cosine: tl.tensor, sine: tl.tensor,
    heads: tl.constexpr, padded_heads: tl.constexpr, half: tl.constexpr, padded_half: tl.constexpr,
) -> None:  # fmt: skip
    """Turn the halves of each of one token's heads against each other."""
    head = tl.arange(0, padded_heads)[:, None]
    column = tl.arange(0, padded_half)[None, :]
    inside = (head < heads) & (column < half)
    at = head * (2 * half) + column
    first = tl.load(source + at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(source + at + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(target + at, first * cosine - second * sine, mask=inside)
    tl.store(target + at + half, second * cosine + first * sine, mask=inside)


@triton.jit
def rotate_and_store(
    qkv: tl.tensor, cosines: tl.tensor, sines: tl.tensor, slots: tl.tensor,
    query: tl.tensor, keys: tl.tensor, values: tl.tensor,
    heads: tl.constexpr, padded_heads: tl.constexpr, kv_heads: tl.constexpr, padded_kv_heads: tl.constexpr,
    half: tl.constexpr, padded_half: tl.constexpr, padded_kv_width: tl.constexpr,
) -> None:  # fmt: skip
    """Grid (T): one token's queries to `query`, its keys and values to its slot; slot -1 is written nowhere."""
    token = tl.program_id(0).to(tl.int64)
    query_width: tl.constexpr = heads * 2 * half
    kv_width: tl.constexpr = kv_heads * 2 * half
    column = tl.arange(0, padded_half)[None, :]
    cosine = tl.load(cosines + token * half + column, mask=column < half, other=0.0)
    sine = tl.load(sines + token * half + column, mask=column < half, other=0.0)
    source = qkv + token * (query_width + 2 * kv_width)
    rotate_heads(source, query + token * query_width, cosine, sine, heads, padded_heads, half, padded_half)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        target = keys + slot * kv_width
        rotate_heads(source + query_width, target, cosine, sine, kv_heads, padded_kv_heads, half, padded_half)
        at = tl.arange(0, padded_kv_width)
        value = tl.load(source + query_width + kv_width + at, mask=at < kv_width, other=0.0)
        tl.store(values + slot * kv_width + at, value, mask=at < kv_width)


@triton.jit
def gated_silu(gate_up: tl.tensor, out: tl.tensor, width: tl.constexpr, tile: tl.constexpr) -> None:
    """Grid (T, tiles of a row): silu of the first half of a row of [T, 2 · width], times the second half."""
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    inside = column < width
    row = tl.program_id(0).to(tl.int64)
    gate = tl.load(gate_up + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, gate * tl.sigmoid(gate) * up, mask=inside)
