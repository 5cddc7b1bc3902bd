"""Paged attention against its definition in float64: ragged batches, block tables, poison in unused slots."""

from __future__ import annotations

import random

import pytest
import torch

from backends.kernels.interface import Kernels, LayerCache
from tests.backends.tensor_builders import build_ragged_case, naive_attention

FLOAT32_TOLERANCE = 2e-6
SHAPES = {
    "one decode": ([1], [1]),
    "a long decode": ([1], [301]),
    "decodes of unequal length": ([1, 1, 1, 1], [17, 1, 64, 33]),
    "a fresh prefill": ([37], [37]),
    "a prefill that fills its blocks": ([32], [32]),
    "a chunk after cached context": ([20], [75]),
    "prefill, chunk and decodes together": ([1, 23, 40, 1, 5], [90, 23, 64, 16, 133]),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_attention_equals_its_definition(kernels: Kernels, shape: tuple[list[int], list[int]]):
    """Every mix of prefill and decode gives the softmax average over what each token may see."""
    case = build_ragged_case(*shape)
    got = kernels.paged_attention(case.query, case.cache, case.step)
    assert (got.double() - naive_attention(case)).abs().max() <= FLOAT32_TOLERANCE


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size"), [(9, 3, 64), (8, 2, 32), (4, 4, 64), (5, 1, 16), (2, 2, 8), (18, 2, 128)]
)
def test_heads_share_key_value_heads_in_any_ratio(kernels: Kernels, heads: int, kv_heads: int, head_size: int):
    """Grouped, multi-query and plain attention."""
    case = build_ragged_case([1, 6], [18, 21], heads=heads, kv_heads=kv_heads, head_size=head_size)
    got = kernels.paged_attention(case.query, case.cache, case.step)
    assert (got.double() - naive_attention(case)).abs().max() <= FLOAT32_TOLERANCE


@pytest.mark.parametrize("seed", range(6))
def test_random_ragged_batches(kernels: Kernels, seed: int):
    """Whatever the batch and the block size."""
    source = random.Random(seed)
    totals = [source.randint(1, 120) for _ in range(source.randint(1, 5))]
    news = [source.choice([1, total, source.randint(1, total)]) for total in totals]
    case = build_ragged_case(news, totals, block_tokens=source.choice([4, 8, 16, 32]), seed=seed)
    got = kernels.paged_attention(case.query, case.cache, case.step)
    assert (got.double() - naive_attention(case)).abs().max() <= FLOAT32_TOLERANCE


def test_where_blocks_lie_changes_nothing(kernels: Kernels):
    """Permuted block tables give bit for bit what tables in order give."""
    shape = ([1, 30, 7], [70, 30, 45])
    scattered, in_order = build_ragged_case(*shape), build_ragged_case(*shape, permuted=False)
    for scattered_part, part in zip(scattered.cache, in_order.cache, strict=True):
        part.view(-1, *part.shape[2:])[in_order.used_slots] = scattered_part.view(-1, *part.shape[2:])[
            scattered.used_slots
        ]
    got = kernels.paged_attention(scattered.query, scattered.cache, scattered.step)
    want = kernels.paged_attention(scattered.query, in_order.cache, in_order.step)
    assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_poison_in_unused_slots_never_leaks(kernels: Kernels, dtype: torch.dtype):
    """NaN in every slot that no sequence uses, block 0 and the ends of last blocks included, changes no bit."""
    case = build_ragged_case([1, 30, 7, 1], [70, 30, 45, 33], dtype=dtype)
    clean = kernels.paged_attention(case.query, case.cache, case.step)
    used = torch.zeros(case.cache.keys.shape[:2], dtype=torch.bool).view(-1)
    used[case.used_slots] = True
    for part in case.cache:
        part.view(-1, *part.shape[2:])[~used] = float("nan")
    poisoned = kernels.paged_attention(case.query, case.cache, case.step)
    assert torch.equal(clean, poisoned)


def test_a_cache_beyond_32_bits_is_addressed_rightly(kernels: Kernels):
    """Block ids times strides outgrow 32 bits in a large cache; the memory is never touched but for one block."""
    far = 2_200_000
    large = torch.empty(far + 1, 16, 1, 64, dtype=torch.bfloat16)
    assert large.numel() > 2**31
    case = build_ragged_case([1], [16], heads=1, kv_heads=1, dtype=torch.bfloat16)
    near = int(case.step.block_tables[0, 0])
    large[far] = case.cache.keys[near]
    want = kernels.paged_attention(case.query, LayerCache(case.cache.keys, case.cache.keys), case.step)
    case.step.spans[0].block_ids[0] = far
    case.step.block_tables[0, 0] = far
    assert torch.equal(kernels.paged_attention(case.query, LayerCache(large, large), case.step), want)


def test_bfloat16_stays_within_its_own_rounding(kernels: Kernels):
    """Twice the error of rounding the inputs, as flash-attention judges low precision."""
    shape = ([1, 12], [64, 40])
    exact = build_ragged_case(*shape)
    rounded = build_ragged_case(*shape, dtype=torch.bfloat16)
    got = kernels.paged_attention(rounded.query, rounded.cache, rounded.step)
    assert (got.double() - naive_attention(rounded)).abs().max() <= 0.02
    assert (got.double() - naive_attention(exact)).abs().max() <= 0.04
