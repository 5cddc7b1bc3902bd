"""How attention is laid out over a GPU: tiles by the mean number of new tokens, segments by what is idle."""

from __future__ import annotations

import pytest

from backends.kernels.triton_plan import (
    LEAST_SEGMENT_TOKENS,
    MOST_SEGMENTS,
    AttentionShape,
    DeviceSize,
    plan_attention,
    power_of_two,
)

H200 = DeviceSize(multiprocessors=132, shared_bytes=227 << 10)
SMALL = DeviceSize(multiprocessors=40, shared_bytes=64 << 10)
LLAMA = {"heads": 32, "kv_heads": 8, "head_size": 128, "item_bytes": 2}
QWEN = {"heads": 28, "kv_heads": 4, "head_size": 128, "item_bytes": 2}
SMOLLM = {"heads": 9, "kv_heads": 3, "head_size": 64, "item_bytes": 4}


def build_shape(rows: int, sequences: int, longest_tokens: int, **model: int) -> AttentionShape:
    return AttentionShape(rows, sequences, longest_tokens, **(model or LLAMA))


def build_shapes() -> list[AttentionShape]:
    """Decodes, prefills and mixed steps of three models, from one token up."""
    steps = [(1, 1, 1), (1, 1, 8192), (8, 8, 500), (256, 256, 4096), (64, 1, 2048), (520, 65, 4096), (4096, 1, 4096)]
    return [build_shape(*step, **model) for step in steps for model in (LLAMA, QWEN, SMOLLM)]


@pytest.mark.parametrize("device", [H200, SMALL], ids=["large", "small"])
def test_every_token_has_a_program(device: DeviceSize):
    """Whole tokens in a tile, and enough programs however the tokens are shared out over the sequences."""
    for shape in build_shapes():
        plan = plan_attention(shape, device)
        assert 1 <= plan.query_tokens * shape.group <= plan.tile_rows
        assert plan.query_blocks >= -(-shape.rows // plan.query_tokens)
        worst = [1] * (shape.sequences - 1) + [shape.rows - shape.sequences + 1]
        assert plan.query_blocks >= sum(-(-tokens // plan.query_tokens) for tokens in worst)


@pytest.mark.parametrize("device", [H200, SMALL], ids=["large", "small"])
def test_tiles_are_what_matrix_units_take(device: DeviceSize):
    """Powers of two from 16 on, within what registers and shared memory hold."""
    for shape in build_shapes():
        plan = plan_attention(shape, device)
        for edge in (plan.tile_rows, plan.tile_tokens):
            assert edge >= 16
            assert edge == power_of_two(edge)
        assert plan.tile_rows * shape.padded_head <= 1 << 14
        two_buffers_of_each = 4 * plan.tile_tokens * shape.padded_head * shape.item_bytes
        queries = plan.tile_rows * shape.padded_head * shape.item_bytes
        assert two_buffers_of_each + queries <= device.shared_bytes


def test_a_decode_has_small_tiles_and_a_prefill_large_ones():
    """And a step of both something between."""
    decode, both, prefill = (
        plan_attention(build_shape(*step), H200).tile_rows for step in ((64, 64, 512), (576, 65, 512), (512, 1, 512))
    )
    assert (decode, both, prefill) == (16, 64, 128)


def test_a_few_long_decodes_are_split():
    """Until the programs fill the device: eight key-value heads of one sequence, then of more and more."""
    segments = [plan_attention(build_shape(count, count, 8192), H200).segments for count in (1, 4, 8, 16, 32, 64)]
    assert segments[0] == MOST_SEGMENTS
    assert segments == sorted(segments, reverse=True)
    assert segments[-1] == 1


def test_a_split_never_asks_for_more_programs_than_fill_the_device():
    """So that the scratch memory has a bound."""
    for shape in build_shapes():
        plan = plan_attention(shape, H200)
        assert plan.segments == 1 or plan.query_blocks * shape.kv_heads * plan.segments <= H200.programs


@pytest.mark.parametrize(("tokens", "segments"), [(1, 1), (255, 1), (256, 2), (1000, 7), (1 << 20, 16)])
def test_short_contexts_are_not_split(tokens: int, segments: int):
    """A segment has 128 tokens at least."""
    assert LEAST_SEGMENT_TOKENS == 128
    assert plan_attention(build_shape(1, 1, tokens), H200).segments == segments


def test_the_number_of_segments_can_be_fixed():
    """For tests and measurements."""
    assert plan_attention(build_shape(1, 1, 10), H200, segments=13).segments == 13


def test_a_group_larger_than_a_tile_widens_it():
    """Multi-query attention with 71 heads on one key-value head."""
    shape = build_shape(3, 3, 10, heads=71, kv_heads=1, head_size=64, item_bytes=2)
    plan = plan_attention(shape, H200)
    assert plan.tile_rows == 128
    assert plan.query_tokens == 1
