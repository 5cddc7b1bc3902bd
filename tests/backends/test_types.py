"""What a runner can read of one scheduled chunk."""

from __future__ import annotations

from backends.types import Batch, ScheduledSequence
from tests.backends.core_builders import build_sequence


def build_chunk(start: int, count: int, samples: bool) -> ScheduledSequence:
    sequence = build_sequence([10, 11, 12, 13, 14])
    sequence.block_ids = [7, 3]
    sequence.token_ids.append(15)
    return ScheduledSequence(sequence, start, count, samples)


def test_a_chunk_knows_its_tokens_its_place_and_its_blocks():
    """Everything a runner needs, without looking at the engine."""
    chunk = build_chunk(2, 3, samples=False)
    assert list(chunk.token_ids) == [12, 13, 14]
    assert chunk.end_token == 5
    assert list(chunk.block_ids) == [7, 3]


def test_a_draw_is_named_by_the_number_of_tokens_so_far():
    """With the seed it gives the same token after a preemption, when prompt and output are computed again."""
    assert build_chunk(5, 1, samples=True).output_index == 1
    assert build_chunk(0, 6, samples=True).output_index == 1


def test_a_batch_counts_its_tokens():
    """Over all its chunks."""
    assert Batch([build_chunk(0, 4, samples=False), build_chunk(5, 1, samples=True)]).token_count == 5
    assert Batch([]).token_count == 0
