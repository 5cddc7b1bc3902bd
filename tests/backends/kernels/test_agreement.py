"""Reference, C++ and Triton (in its interpreter) compute the same: random ragged batches, poison, any split.

All in float32, to 2e-6. What the interpreter cannot show (a GPU's own arithmetic, bfloat16, races) is for
bench/gpu_kernels.py on a GPU.
"""

from __future__ import annotations

import contextlib
import random
from functools import cache

import pytest
import torch
from torch import Tensor

from backends.kernels.cpu import CpuKernels
from backends.kernels.interface import Kernels, LayerCache, Rotation
from backends.kernels.reference import ReferenceKernels
from tests.backends.tensor_builders import RaggedCase, build_ragged_case, naive_attention

triton_paged = pytest.importorskip("backends.kernels.triton_paged", reason="triton is not installed")

TOLERANCE = 2e-6
SPLITS = range(1, 17)
HEADS = ((9, 3, 64), (28, 4, 16), (4, 4, 32), (5, 1, 80), (6, 2, 8), (2, 1, 128))
"""Query heads, key-value heads, head size: groups that are no power of two, plain and multi-query attention."""


@cache
def implementations() -> dict[str, Kernels]:
    """All that run here; the C++ ones need a compiler."""
    built: dict[str, Kernels] = {"reference": ReferenceKernels()}
    with contextlib.suppress(OSError):
        built["cpu"] = CpuKernels()
    return {**built, "triton": build_triton()}


def build_triton(segments: int | None = None) -> Kernels:
    return triton_paged.TritonKernels(torch.device("cpu"), segments)


def build_random_case(seed: int) -> RaggedCase:
    """Decodes, prefills and chunks together; few tokens, as the interpreter takes milliseconds for each tile."""
    source = random.Random(seed)
    totals = [source.choice([1, source.randint(1, 40), source.randint(1, 90)]) for _ in range(source.randint(1, 4))]
    news = [source.choice([1, total, source.randint(1, total)]) for total in totals]
    heads, kv_heads, head_size = HEADS[seed % len(HEADS)]
    block_tokens = source.choice([4, 8, 16, 32])
    return build_ragged_case(
        news, totals, heads=heads, kv_heads=kv_heads, head_size=head_size, block_tokens=block_tokens, seed=seed
    )


def poison(case: RaggedCase) -> RaggedCase:
    """NaN in every slot that no sequence uses: block 0, the ends of last blocks, blocks of nobody."""
    used = torch.zeros(case.cache.keys.shape[:2], dtype=torch.bool).view(-1)
    used[case.used_slots] = True
    for part in case.cache:
        part.view(-1, *part.shape[2:])[~used] = float("nan")
    return case


def attend(kernels: Kernels, case: RaggedCase) -> Tensor:
    return kernels.paged_attention(case.query, case.cache, case.step)


def error(got: Tensor, want: Tensor) -> float:
    """The largest difference; NaN does not hide in it."""
    assert got.shape == want.shape
    assert not got.isnan().any()
    return float((got.double() - want.double()).abs().max())


@pytest.mark.parametrize("seed", range(12))
def test_random_ragged_batches_agree(seed: int):
    """Over permuted block tables with NaN in whatever is unused, every implementation gives the definition's result."""
    case = poison(build_random_case(seed))
    want = naive_attention(case)
    answers = {name: attend(kernels, case) for name, kernels in implementations().items()}
    assert {name: error(answer, want) <= TOLERANCE for name, answer in answers.items()} == dict.fromkeys(answers, True)
    assert all(error(answer, answers["reference"]) <= TOLERANCE for answer in answers.values())


@pytest.mark.parametrize("segments", SPLITS)
def test_any_split_of_the_context_agrees(segments: int):
    """A long decode, one token alone, a chunk across a tile's edge: from one segment to 16, most of them then empty."""
    case = poison(build_ragged_case([1, 1, 3], [230, 1, 66], heads=3, kv_heads=1, head_size=16))
    got = attend(build_triton(segments), case)
    assert error(got, naive_attention(case)) <= TOLERANCE
    assert all(error(got, attend(kernels, case)) <= TOLERANCE for kernels in implementations().values())


@pytest.mark.parametrize("name", ["reference", "cpu", "triton"])
def test_where_blocks_lie_changes_no_bit(name: str):
    """Permuted block tables against tables in order."""
    if name not in implementations():
        pytest.skip("no C++ compiler")
    kernels, shape = implementations()[name], ([1, 12, 7], [70, 12, 45])
    scattered, in_order = build_ragged_case(*shape), build_ragged_case(*shape, permuted=False)
    for target, source in zip(in_order.cache, scattered.cache, strict=True):
        target.view(-1, *target.shape[2:])[in_order.used_slots] = source.view(-1, *source.shape[2:])[
            scattered.used_slots
        ]
    got = kernels.paged_attention(scattered.query, in_order.cache, in_order.step)
    assert torch.equal(got, attend(kernels, scattered))


@pytest.mark.parametrize("adds", [True, False], ids=["with an update", "of a first layer"])
def test_norms_agree(adds: bool):
    """The norm, and the residual that it leaves behind."""
    torch.manual_seed(0)
    residual, update, weight = torch.randn(5, 96) * 3, torch.randn(5, 96), torch.randn(96)
    want_residual = residual + update if adds else residual
    want = torch.nn.functional.rms_norm(want_residual.double(), (96,), weight.double(), 1e-5)
    for kernels in implementations().values():
        mine = residual.clone()
        assert error(kernels.add_rms_norm(mine, update if adds else None, weight, 1e-5), want) <= TOLERANCE
        assert torch.equal(mine, want_residual)


@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), HEADS)
def test_rotations_and_cache_writes_agree(heads: int, kv_heads: int, head_size: int):
    """Queries, and the whole caches afterwards: what is no slot of the step stays as it was."""
    torch.manual_seed(1)
    slots = torch.tensor([9, 2, 4])
    qkv = torch.randn(3, (heads + 2 * kv_heads) * head_size)
    angles = torch.rand(3, head_size // 2) * 6
    results = []
    for kernels in implementations().values():
        cache_of_sevens = LayerCache(*(torch.full((3, 4, kv_heads, head_size), 7.0) for _ in range(2)))
        query = kernels.rotate_and_store(qkv, Rotation(angles.cos(), angles.sin()), cache_of_sevens, slots)
        results.append((query, *cache_of_sevens))
    for result in results[1:]:
        assert all(error(part, want) <= TOLERANCE for part, want in zip(result, results[0], strict=True))


def test_gates_agree():
    """Also far from zero, and with a width that fills no tile."""
    torch.manual_seed(2)
    gate_up = torch.cat([torch.randn(4, 75) * 20, torch.randn(4, 75)], dim=1)
    want = torch.nn.functional.silu(gate_up[:, :75].double()) * gate_up[:, 75:].double()
    for kernels in implementations().values():
        got = kernels.gated_silu(gate_up)
        assert ((got - want).abs() <= TOLERANCE * (1 + want.abs())).all()
