"""Paged attention on a GPU, in Triton: one kernel for prefill, decode and both together, and one that joins segments.

A program computes `tile_rows` rows for one key-value head: `query_tokens` new tokens of one sequence, each with all
query heads that share this key-value head, so that keys and values are read once for the group. It walks over the
sequence's keys tile by tile and keeps a running maximum, sum of weights and weighted sum of values (online softmax).
Needs nothing that Triton 3.6 to 3.9 do not share. The layout (sizes of tiles, segments) comes from `triton_plan.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

NOTHING = tl.constexpr(float("-inf"))


@triton.jit
def find_sequence(
    query_starts: tl.tensor, program: tl.tensor, sequences: tl.tensor, query_tokens: tl.constexpr
) -> tl.tensor:
    """The sequence that a program works for: sequence i's first one is `query_starts[i] // query_tokens + i`."""
    low = program * 0
    high = low + sequences
    while high - low > 1:
        middle = (low + high) // 2
        first = tl.load(query_starts + middle) // query_tokens + middle
        high = tl.where(first <= program, high, middle)
        low = tl.where(first <= program, middle, low)
    return low


@triton.jit
def load_tile(pointers: tl.tensor, inside: tl.tensor, bounded: tl.constexpr) -> tl.tensor:
    """A tile, zero where it is not `inside`; unbounded tiles are read without asking."""
    if bounded:
        return tl.load(pointers, mask=inside, other=0.0)
    return tl.load(pointers)


@triton.jit
def attend_tile(
    state: tl.tuple, tile: tl.tensor, query: tl.tensor, keys: tl.tensor, values: tl.tensor, table: tl.tensor,
    last_seen: tl.tensor, visible: tl.tensor, scale: tl.tensor, block_stride: tl.tensor, slot_stride: tl.tensor,
    block_tokens: tl.constexpr, head_size: tl.constexpr, padded_head: tl.constexpr, tile_tokens: tl.constexpr,
    bounded: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """`state` after one more tile of keys. A `bounded` one holds keys that some row must not see, or that are none.

    A row that has seen nothing keeps a maximum of -inf, from which nothing is subtracted: -inf - -inf is no number.
    """
    best, total, mixed = state
    column = tl.arange(0, padded_head)
    position = tile * tile_tokens + tl.arange(0, tile_tokens)
    inside = position < visible
    # A block's place outgrows 32 bits before its number does.
    block = load_tile(table + position // block_tokens, inside, bounded).to(tl.int64)
    place = block * block_stride + (position % block_tokens) * slot_stride
    in_head = column < head_size
    ragged: tl.constexpr = bounded or head_size != padded_head
    key = load_tile(keys + place[None, :] + column[:, None], inside[None, :] & in_head[:, None], ragged)
    value = load_tile(values + place[:, None] + column[None, :], inside[:, None] & in_head[None, :], ragged)
    scores = tl.dot(query, key, input_precision="ieee") * scale
    if bounded:
        scores = tl.where(position[None, :] <= last_seen[:, None], scores, NOTHING)
    highest = tl.maximum(best, tl.max(scores, 1))
    base = tl.where(highest > NOTHING, highest, 0.0)
    weights = tl.exp2(scores - base[:, None])
    kept = tl.exp2(best - base)
    total = total * kept + tl.sum(weights, 1)
    mixed = tl.dot(weights.to(value.dtype), value, mixed * kept[:, None], input_precision="ieee")
    return highest, total, mixed


@triton.jit(do_not_specialize=["sequences", "table_stride", "segments"])
def attend(
    out: tl.tensor, parts: tl.tensor, maxima: tl.tensor, sums: tl.tensor,
    query: tl.tensor, keys: tl.tensor, values: tl.tensor,
    block_tables: tl.tensor, sequence_tokens: tl.tensor, query_starts: tl.tensor,
    scale: tl.tensor, sequences: tl.tensor, table_stride: tl.tensor, block_stride: tl.tensor, slot_stride: tl.tensor,
    segments: tl.tensor, heads: tl.constexpr, group: tl.constexpr, head_size: tl.constexpr, padded_head: tl.constexpr,
    block_tokens: tl.constexpr, query_tokens: tl.constexpr, tile_rows: tl.constexpr, tile_tokens: tl.constexpr,
    splits: tl.constexpr,
) -> None:  # fmt: skip
    """Grid (query blocks, key-value heads, segments). `scale` includes log2(e), as weights are powers of two.

    Unless it `splits`, the result goes to `out` [T, heads, head_size]; else each segment's sum, maximum and weighted
    values go to `sums`, `maxima` [T, heads, segments] and `parts` [T, heads, segments, padded_head].
    """
    # The last blocks of a prefill see the most keys: they start first, so that none of them is left over at the end.
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = find_sequence(query_starts, program, sequences, query_tokens)
    first_row = tl.load(query_starts + sequence)
    new_tokens = tl.load(query_starts + sequence + 1) - first_row
    first_token = (program - first_row // query_tokens - sequence) * query_tokens
    if first_token >= new_tokens:
        return
    known_tokens = tl.load(sequence_tokens + sequence)
    row = tl.arange(0, tile_rows)
    token = first_token + row // group
    real = (row < query_tokens * group) & (token < new_tokens)
    # Row counts times heads times sizes may outgrow 32 bits in the parts.
    place = (first_row + token).to(tl.int64) * heads + kv_head * group + row % group
    column = tl.arange(0, padded_head)
    stored = real[:, None] & (column[None, :] < head_size)
    rows = tl.load(query + place[:, None] * head_size + column[None, :], mask=stored, other=0.0)
    last_seen = known_tokens - new_tokens + token
    first_seen = known_tokens - new_tokens + first_token
    visible = tl.minimum(first_seen + query_tokens, known_tokens)
    tiles = tl.cdiv(visible, tile_tokens)
    share = tl.cdiv(tiles, segments)
    begin = tl.program_id(2) * share
    end = tl.minimum(begin + share, tiles)
    seen_by_all = tl.minimum((first_seen + 1) // tile_tokens, end)
    keys += kv_head * head_size
    values += kv_head * head_size
    table = block_tables + sequence.to(tl.int64) * table_stride
    best = tl.full([tile_rows], NOTHING, tl.float32)
    total = tl.zeros([tile_rows], tl.float32)
    mixed = tl.zeros([tile_rows, padded_head], tl.float32)
    for tile in range(begin, seen_by_all):
        best, total, mixed = attend_tile(
            (best, total, mixed), tile, rows, keys, values, table, last_seen, visible, scale, block_stride,
            slot_stride, block_tokens, head_size, padded_head, tile_tokens, bounded=False,
        )  # fmt: skip
    for tile in range(tl.maximum(begin, seen_by_all), end):
        best, total, mixed = attend_tile(
            (best, total, mixed), tile, rows, keys, values, table, last_seen, visible, scale, block_stride,
            slot_stride, block_tokens, head_size, padded_head, tile_tokens, bounded=True,
        )  # fmt: skip
    if not splits:
        tl.store(out + place[:, None] * head_size + column[None, :], mixed / total[:, None], mask=stored)
    else:
        part = place * segments + tl.program_id(2)
        tl.store(maxima + part, best, mask=real)
        tl.store(sums + part, total, mask=real)
        # A row that saw nothing of this segment has no part worth writing; joining leaves it out.
        tl.store(parts + part[:, None] * padded_head + column[None, :], mixed, mask=stored & (total > 0.0)[:, None])


@triton.jit(do_not_specialize=["segments"])
def join_segments(
    out: tl.tensor, parts: tl.tensor, maxima: tl.tensor, sums: tl.tensor, segments: tl.tensor,
    head_size: tl.constexpr, padded_head: tl.constexpr, most_segments: tl.constexpr,
) -> None:  # fmt: skip
    """Grid (T · heads): the average of a row's segments, each weighted by its sum on the scale of the best maximum.

    An empty segment has the maximum -inf, so it sets no scale and weighs nothing; its part was never written, and what
    lies there, NaN perhaps, is not read.
    """
    row = tl.program_id(0).to(tl.int64)
    segment = tl.arange(0, most_segments)
    at = row * segments + segment
    best = tl.load(maxima + at, mask=segment < segments, other=NOTHING)
    total = tl.load(sums + at, mask=segment < segments, other=0.0)
    weight = tl.exp2(best - tl.max(best, 0))
    column = tl.arange(0, padded_head)
    in_head = column < head_size
    part = tl.load(
        parts + at[:, None] * padded_head + column[None, :], mask=(total > 0.0)[:, None] & in_head[None, :], other=0.0
    )
    mixed = tl.sum(part * weight[:, None], 0) / tl.sum(total * weight, 0)
    tl.store(out + row * head_size + column, mixed, mask=in_head)
