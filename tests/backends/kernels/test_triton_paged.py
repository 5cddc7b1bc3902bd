"""What is Triton's alone: scratch memory between segments, padding, offsets beyond 32 bits, refusals, a whole model."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.interface import Kernels, LayerCache, Rotation
from tests.backends.tensor_builders import (
    RaggedCase,
    build_ragged_case,
    build_runner,
    build_sequence,
    generate,
    naive_attention,
    run_chunk,
)

triton_paged = pytest.importorskip("backends.kernels.triton_paged", reason="triton is not installed")

SMALL = {"heads": 3, "kv_heads": 1, "head_size": 16}


def build_triton(segments: int | None = None) -> Kernels:
    return triton_paged.TritonKernels(torch.device("cpu"), segments)


def attend(kernels: Kernels, case: RaggedCase) -> torch.Tensor:
    return kernels.paged_attention(case.query, case.cache, case.step)


def test_the_tests_run_in_the_interpreter():
    """Else every test here would need a GPU."""
    assert triton_paged.INTERPRETED


def test_an_empty_segment_reads_nothing_of_an_earlier_call():
    """Scratch is shared by all calls: parts full of NaN lie where the next call's segments have no keys."""
    kernels = build_triton(segments=16)
    spoilt = build_ragged_case([1, 1], [300, 300], **SMALL)
    spoilt.cache.values.fill_(float("nan"))
    assert attend(kernels, spoilt).isnan().all()
    case = build_ragged_case([1, 1], [40, 3], **SMALL)
    assert (attend(kernels, case).double() - naive_attention(case)).abs().max() <= 2e-6


def test_scratch_is_allocated_once():
    """A later, smaller call takes the memory of the first."""
    kernels = build_triton(segments=4)
    attend(kernels, build_ragged_case([1, 1], [70, 30], **SMALL))
    before = kernels._scratch.data_ptr()
    attend(kernels, build_ragged_case([1], [40], **SMALL))
    assert kernels._scratch.data_ptr() == before


def test_sequences_without_new_tokens_cost_nothing_and_change_nothing():
    """As a captured graph pads a batch: a third sequence whose rows end where they begin."""
    case = build_ragged_case([1, 7], [20, 31], **SMALL)
    step = case.step
    padded = type(step)(
        token_ids=step.token_ids,
        positions=step.positions,
        slots=step.slots,
        block_tables=torch.cat([step.block_tables, torch.zeros_like(step.block_tables[:1])]),
        sequence_tokens=torch.cat([step.sequence_tokens, torch.tensor([0], dtype=torch.int32)]),
        query_starts=torch.cat([step.query_starts, step.query_starts[-1:]]),
        sample_rows=step.sample_rows,
        spans=(*step.spans, step.spans[-1]),
    )
    kernels = build_triton()
    assert torch.equal(kernels.paged_attention(case.query, case.cache, padded), attend(kernels, case))


def test_a_slot_of_minus_one_is_written_nowhere():
    """Its query is rotated all the same, and the slots of other tokens get what is theirs."""
    torch.manual_seed(0)
    qkv, angles = torch.randn(3, 4 * 16), torch.zeros(3, 8)
    cache = LayerCache(torch.zeros(2, 4, 1, 16), torch.zeros(2, 4, 1, 16))
    rotation = Rotation(angles.cos(), angles.sin())
    query = build_triton().rotate_and_store(qkv, rotation, cache, torch.tensor([5, -1, 0]))
    parts = qkv.view(3, 4, 16)
    assert torch.equal(query, parts[:, :2])
    keys, values = (part.view(8, 16) for part in cache)
    assert torch.equal(keys[[5, 0]], parts[[0, 2], 2])
    assert torch.equal(values[[5, 0]], parts[[0, 2], 3])
    assert not keys[[1, 2, 3, 4, 6, 7]].any()
    assert not values[[1, 2, 3, 4, 6, 7]].any()


def test_offsets_beyond_32_bits_are_right():
    """Reading from and writing to a block whose first element lies past 2^31; the rest is never touched."""
    far = 2_200_000
    large = torch.empty(far + 1, 16, 1, 64, dtype=torch.float16)
    assert far * large.stride(0) > 2**31
    case = build_ragged_case([1], [16], heads=1, kv_heads=1, dtype=torch.float16)
    large[far] = case.cache.keys[int(case.step.block_tables[0, 0])]
    kernels = build_triton()
    want = kernels.paged_attention(case.query, LayerCache(case.cache.keys, case.cache.keys), case.step)
    case.step.block_tables[0, 0] = far
    assert torch.equal(kernels.paged_attention(case.query, LayerCache(large, large), case.step), want)
    qkv, angles = torch.randn(1, 3 * 64).half(), torch.zeros(1, 32)
    kernels.rotate_and_store(
        qkv, Rotation(angles.cos(), angles.sin()), LayerCache(large, large), torch.tensor([far * 16 + 3])
    )
    assert torch.equal(large[far, 3, 0], qkv[0, 128:])


def test_float16_stays_within_its_own_rounding():
    """Half precision of queries, weights and values; sums in float32."""
    case = build_ragged_case([1, 6], [50, 21], heads=28, kv_heads=4, head_size=128, dtype=torch.float16)
    got = attend(build_triton(), case)
    assert got.dtype == torch.float16
    assert (got.double() - naive_attention(case)).abs().max() <= 2e-3


def test_the_interpreter_refuses_bfloat16():
    """It would compute with the bit patterns, and say nothing."""
    case = build_ragged_case([1], [4], dtype=torch.bfloat16, **SMALL)
    with pytest.raises(ValueError, match="interpreter computes bfloat16 wrongly: use float32 or float16"):
        attend(build_triton(), case)


def test_tensors_with_gaps_are_refused():
    """A kernel counts on elements end to end; a wrong answer would be silent."""
    with pytest.raises(ValueError, match=r"shape \(3, 4\) that is not contiguous"):
        build_triton().gated_silu(torch.zeros(4, 3).T)


@pytest.mark.parametrize("segments", [None, 3])
def test_a_model_gives_the_reference_s_tokens(segments: int | None):
    """A tiny random Llama, greedy: prefill in two chunks, then decodes, all operations in Triton."""
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    answers = []
    for kernels in (None, build_triton(segments)):
        runner = build_runner(num_blocks=8, block_tokens=4, kernels=kernels)
        sequence = build_sequence(prompt, [3, 1, 6, 2, 5])
        run_chunk(runner, sequence, 0, 6)
        answers.append(generate(runner, sequence, 6))
    assert answers[0] == answers[1]
