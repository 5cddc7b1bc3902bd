"""A batch as tensors: rows end to end, slots through the block tables."""

from __future__ import annotations

import pytest
import torch

from backends.step_tensors import build_step
from backends.types import Batch, ScheduledSequence
from tests.backends.tensor_builders import build_sequence


def build_mixed_batch() -> Batch:
    """A fresh prefill, a chunk that does not sample, a decode; blocks of 4 tokens."""
    fresh = build_sequence([10, 11, 12], [7])
    chunked = build_sequence(range(20, 40), [3, 9, 1, 2, 5])
    decoding = build_sequence(range(50, 59), [4, 8, 6])
    return Batch(
        [
            ScheduledSequence(fresh, 0, 3, True),
            ScheduledSequence(chunked, 6, 5, False),
            ScheduledSequence(decoding, 8, 1, True),
        ]
    )


def test_rows_follow_the_batch():
    """Tokens, positions and borders of three sequences."""
    step = build_step(build_mixed_batch(), 4)
    assert step.token_ids.tolist() == [10, 11, 12, 26, 27, 28, 29, 30, 58]
    assert step.positions.tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 8]
    assert step.query_starts.tolist() == [0, 3, 8, 9]
    assert step.sequence_tokens.tolist() == [3, 11, 9]
    assert [(span.rows, span.sequence_tokens) for span in step.spans] == [
        (slice(0, 3), 3),
        (slice(3, 8), 11),
        (slice(8, 9), 9),
    ]


def test_a_slot_is_its_block_times_the_block_size_plus_the_offset():
    """Through each sequence's own table."""
    step = build_step(build_mixed_batch(), 4)
    assert step.slots.tolist() == [28, 29, 30, 38, 39, 4, 5, 6, 24]
    assert step.slots.dtype == torch.int64


def test_tables_hold_only_the_blocks_in_use():
    """Blocks allotted ahead are left out; shorter tables are padded with block 0."""
    step = build_step(build_mixed_batch(), 4)
    assert step.block_tables.tolist() == [[7, 0, 0], [3, 9, 1], [4, 8, 6]]
    assert [span.block_ids.tolist() for span in step.spans] == [[7], [3, 9, 1], [4, 8, 6]]


def test_last_rows_of_sequences_that_sample_are_wanted():
    """The chunk that does not reach its end wants no logits."""
    assert build_step(build_mixed_batch(), 4).sample_rows.tolist() == [2, 8]


def test_decodes_and_chunks_are_told_apart():
    """One new token, or several."""
    step = build_step(build_mixed_batch(), 4)
    assert step.decodes.tolist() == [2]
    assert step.chunks == step.spans[:2]


def test_new_tokens_see_the_cache_and_what_came_before_them():
    """The mask of a chunk of two over one cached token."""
    step = build_step(Batch([ScheduledSequence(build_sequence([1, 2, 3], [1]), 1, 2, True)]), 4)
    assert step.spans[0].causal_mask.tolist() == [[True, True, False], [True, True, True]]


def test_a_table_that_is_too_short_is_an_error():
    """Never a write to somebody else's block."""
    with pytest.raises(ValueError, match="1 blocks cannot hold 5 tokens"):
        build_step(Batch([ScheduledSequence(build_sequence([1, 2, 3, 4, 5], [1]), 0, 5, True)]), 4)
