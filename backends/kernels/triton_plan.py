"""How the Triton attention kernel is laid out over a GPU for one step: tile sizes, programs, split of long contexts.

Plain arithmetic on numbers that the host knows, so that a step never waits for the device.

How many segments a context is split into. One program reads a whole context for its query rows, so a few decodes leave
most of a GPU idle while each of them reads for long. The contexts are then split so that the programs just fill the
device: `device.programs // programs` segments, at most 16 (more would leave too little to each of the 64 to 128
programs that a batch of one has), and none shorter than 128 tokens, below which starting a program and combining
the parts cost more than the tokens read. A step that fills the device by itself is not split: every part of a split
has to be written out and read again. `device.programs` is four per multiprocessor: each has up to 32 KiB of keys and
values under way, and the latency of the memory asks for some 30 KiB per multiprocessor (H200: 4.8 TB/s · 0.8 µs / 132),
with room for those that compute or wait meanwhile. None of this has been measured on a GPU yet.
"""

from __future__ import annotations

from typing import NamedTuple

MOST_SEGMENTS = 16
LEAST_SEGMENT_TOKENS = 128
PROGRAMS_PER_MULTIPROCESSOR = 4
LEAST_EDGE = 16
"""Matrix units work on 16 rows and 16 columns at least."""

ROOMY_BYTES = 160 << 10
"""Shared memory of a data-centre GPU (A100 and later); others have about 64 to 100 KiB."""


class DeviceSize(NamedTuple):
    """What a plan must know of a GPU: its multiprocessors, and the shared memory that one program may have."""

    multiprocessors: int
    shared_bytes: int

    @property
    def programs(self) -> int:
        """Programs that keep it busy."""
        return self.multiprocessors * PROGRAMS_PER_MULTIPROCESSOR

    @property
    def is_roomy(self) -> bool:
        """Whether the large tiles fit."""
        return self.shared_bytes >= ROOMY_BYTES


class AttentionShape(NamedTuple):
    """One attention call: `rows` new tokens of `sequences` sequences, the longest of `longest_tokens` tokens in all."""

    rows: int
    sequences: int
    longest_tokens: int
    heads: int
    kv_heads: int
    head_size: int
    item_bytes: int

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads

    @property
    def padded_head(self) -> int:
        """The head size as a power of two."""
        return max(power_of_two(self.head_size), LEAST_EDGE)


class AttentionPlan(NamedTuple):
    """A launch. A program has `tile_rows` rows, (token, head of the group) pairs of `query_tokens` tokens.

    It reads keys and values `tile_tokens` tokens at a time. `query_blocks` is an upper bound that needs no look at how
    the tokens are shared out; programs without tokens end at once.
    """

    tile_rows: int
    query_tokens: int
    tile_tokens: int
    query_blocks: int
    segments: int
    warps: int
    stages: int


def plan_attention(shape: AttentionShape, device: DeviceSize, segments: int | None = None) -> AttentionPlan:
    """The layout for one call; `segments` overrules the number of segments."""
    tile_rows = _tile_rows(shape, device)
    query_tokens = tile_rows // shape.group
    query_blocks = shape.rows // query_tokens + shape.sequences
    wide = tile_rows * shape.padded_head >= 1 << 13
    return AttentionPlan(
        tile_rows=tile_rows,
        query_tokens=query_tokens,
        tile_tokens=_tile_tokens(shape, large=wide and device.is_roomy),
        query_blocks=query_blocks,
        segments=segments or _segments(shape, query_blocks * shape.kv_heads, device.programs),
        warps=8 if wide else 4,
        stages=_stages(device, wide=wide),
    )


def _tile_rows(shape: AttentionShape, device: DeviceSize) -> int:
    """Enough rows for the mean number of new tokens.

    A decode would waste the work on a large tile, a prefill would read its keys again for every small one. Sums of
    128 x 128 float32 numbers fill the registers of eight warps. Products of float32 are made without matrix units,
    unrolled, so those tiles stay small.
    """
    mean_tokens = -(-shape.rows // max(shape.sequences, 1))
    most = (1 << 14 if device.is_roomy else 1 << 13) // shape.padded_head
    most = min(most, 128) if shape.item_bytes < 4 else 32
    wanted = power_of_two(mean_tokens * shape.group)
    return max(min(wanted, most), power_of_two(shape.group), LEAST_EDGE)


def _tile_tokens(shape: AttentionShape, *, large: bool) -> int:
    """8 KiB of keys, or 16 for a large tile of rows, which uses each of them more often."""
    tokens = (1 << 14 if large else 1 << 13) // (shape.padded_head * shape.item_bytes)
    return max(min(tokens, 64), LEAST_EDGE)


def _stages(device: DeviceSize, *, wide: bool) -> int:
    """Steps of the loop that overlap: the look into the block table, the keys and values it leads to, the products.

    In the compiled code (sm_90) it takes a decode five stages to have two tiles of keys and values under way at once;
    a large tile of rows has two with three, where they fit.
    """
    if not wide:
        return 5
    return 3 if device.is_roomy else 2


def _segments(shape: AttentionShape, programs: int, device_programs: int) -> int:
    """See the top of this file."""
    by_length = shape.longest_tokens // LEAST_SEGMENT_TOKENS
    return max(min(device_programs // max(programs, 1), by_length, MOST_SEGMENTS), 1)


def power_of_two(number: int) -> int:
    """The least power of two that is not below `number` (at least 1)."""
    return 1 << max(number - 1, 0).bit_length()
