"""Whether the Triton kernels are right: each against float64, as wrong as a plain run in its precision may be.

flash-attention's rule, which sets its own tolerance: `max|out - ref| <= 2 · max|plain - ref| + 2 · max|(ref + 0.3 -
0.3) - ref|`, where `plain` computes the same in the inputs' precision and the last term is what rounding alone costs.
In float32, where a plain run may be right by luck, at least 2e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from backends.kernels.interface import Kernels, LayerCache, Rotation
from backends.kernels.reference import ReferenceKernels
from backends.kernels.triton_paged import TritonKernels
from bench.gpu.cases import LLAMA, QWEN, SMOLLM, Case, Model, attention_by_definition, build_case, build_step

LONG = (([1, 5, 129], [1328, 18, 463]), ([1, 1, 1], [523, 37, 2011]), ([700], [2100]))
"""New and total tokens: vLLM's mixed and decode cases, and a chunk after a cached context."""

SHORT = (([1, 5, 12], [70, 18, 40]), ([1, 1], [90, 33]))
MODELS = (LLAMA, QWEN, SMOLLM, Model("head size 80", 5, 1, 80), Model("head size 256", 4, 2, 256))
FLOAT32_LIMIT = 2e-6
OVERFLOW_BLOCKS, OVERFLOW_BLOCK_TOKENS = 32_768, 128


class Check(NamedTuple):
    """What was checked; `error` may be `limit` at most. A check that had to be left out says why."""

    name: str
    error: float = 0.0
    limit: float = 0.0
    skipped: str = ""

    @property
    def passed(self) -> bool:
        """NaN does not pass."""
        return bool(self.skipped) or self.error <= self.limit


def compare(name: str, got: Tensor, plain: Tensor, truth: Tensor) -> Check:
    """The rule at the top of this file."""
    rounded = truth.to(got.dtype)
    rounding = ((rounded + 0.3 - 0.3).double() - rounded.double()).abs().max()
    limit = float(2 * (plain.double() - truth).abs().max() + 2 * rounding)
    least = FLOAT32_LIMIT if got.dtype == torch.float32 else 0.0
    return Check(name, float((got.double() - truth).abs().max()), max(limit, least))


def run_checks(device: str, dtypes: list[torch.dtype], *, short: bool) -> Iterator[Check]:
    """All checks, one after the other; `short` for the interpreter."""
    for dtype in dtypes:
        for model in MODELS[1:4] if short else MODELS:
            yield from _check_attention(model, dtype, device, short=short)
        yield from _check_small_operations(dtype, device)
    yield _check_overflow(device)


def _check_attention(model: Model, dtype: torch.dtype, device: str, *, short: bool) -> Iterator[Check]:
    for new_tokens, total_tokens in SHORT if short else LONG:
        case = build_case(model, new_tokens, total_tokens, dtype, device)
        truth, plain = attention_by_definition(case, torch.float64), attention_by_definition(case, dtype)
        for segments in (None, 3) if short else (None, 1, 3, 16):
            kernels = TritonKernels(torch.device(device), segments)
            got = kernels.paged_attention(case.query, case.cache, case.step)
            name = f"attention {model.name} {dtype} {new_tokens} of {total_tokens}, segments {segments or 'by rule'}"
            yield compare(name, got, plain, truth)


def _check_small_operations(dtype: torch.dtype, device: str) -> Iterator[Check]:
    generator = torch.Generator(device).manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    inputs = (random(7, 3584), random(7, 3584).to(dtype), random(3584).to(dtype), random(7, 2 * 1111).to(dtype))
    qkv, angles = random(7, (28 + 8) * 128).to(dtype), random(7, 64) * 6
    triton, plain, truth = TritonKernels(torch.device(device)), ReferenceKernels(), ReferenceKernels()
    names = ("norm", "residual", "gate", "query", "keys", "values")
    exact = _small_operations(truth, tuple(part.double() for part in inputs), qkv.double(), angles.double())
    results = (_small_operations(kernels, inputs, qkv, angles) for kernels in (triton, plain))
    for name, got, simple, want in zip(names, *results, exact):
        yield compare(f"{name} {dtype}", got, simple, want)


def _small_operations(kernels: Kernels, inputs: tuple[Tensor, ...], qkv: Tensor, angles: Tensor) -> list[Tensor]:
    residual, update, weight, gate_up = inputs
    residual = residual.clone()
    cache = LayerCache(*(torch.zeros(3, 16, 4, 128, dtype=qkv.dtype, device=qkv.device) for _ in range(2)))
    slots = torch.tensor([40, 3, 17, 0, 16, 47, 1], device=qkv.device)
    normed = kernels.add_rms_norm(residual, update, weight, 1e-5)
    query = kernels.rotate_and_store(qkv, Rotation(angles.cos(), angles.sin()), cache, slots)
    return [normed, residual, kernels.gated_silu(gate_up), query, *cache]


def _check_overflow(device: str) -> Check:
    """Blocks whose elements lie past 2^31 and up to 2^32: read and written, in a cache of 32,768 blocks."""
    name = f"offsets beyond 32 bits ({OVERFLOW_BLOCKS} blocks of {OVERFLOW_BLOCK_TOKENS} tokens)"
    shape = (OVERFLOW_BLOCKS, OVERFLOW_BLOCK_TOKENS, LLAMA.kv_heads, LLAMA.head_size)
    needed_bytes = 2 * OVERFLOW_BLOCKS * OVERFLOW_BLOCK_TOKENS * LLAMA.kv_heads * LLAMA.head_size
    if device != "cpu" and torch.cuda.mem_get_info()[0] < needed_bytes + (1 << 30):
        return Check(name, skipped=f"needs {needed_bytes >> 30} GiB")
    large = torch.empty(shape, dtype=torch.float16, device=device)
    ends = [OVERFLOW_BLOCKS - 1, OVERFLOW_BLOCKS // 2 + 1]
    table = torch.tensor(ends, dtype=torch.int32, device=device)
    tokens = OVERFLOW_BLOCK_TOKENS + 5
    kernels = TritonKernels(torch.device(device))
    qkv = torch.randn(tokens, 3 * LLAMA.kv_heads * LLAMA.head_size, device=device).half()
    angles = torch.zeros(tokens, LLAMA.head_size // 2, device=device)
    places = torch.arange(tokens, device=device)
    slots = table[places // OVERFLOW_BLOCK_TOKENS].long() * OVERFLOW_BLOCK_TOKENS + places % OVERFLOW_BLOCK_TOKENS
    query = kernels.rotate_and_store(qkv, Rotation(angles.cos(), angles.sin()), LayerCache(large, large), slots)
    near = LayerCache(*(large[ends].clone() for _ in range(2)))
    here = torch.arange(2, dtype=torch.int32, device=device)
    got = kernels.paged_attention(query[-1:], LayerCache(large, large), build_step([1], [tokens], [table], device))
    case = Case(query[-1:], near, build_step([1], [tokens], [here], device))
    written = qkv.view(tokens, -1, LLAMA.head_size)[:, -LLAMA.kv_heads :]
    if not torch.equal(near.values.flatten(0, 1)[:tokens], written):
        return Check(name, error=float("inf"))
    return compare(
        name, got, attention_by_definition(case, torch.float16), attention_by_definition(case, torch.float64)
    )
