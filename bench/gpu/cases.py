"""Inputs of attention on a device, the definition of its result in float64, and a plain run in low precision."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from backends.kernels.interface import LayerCache, SequenceSpan, StepContext


class Model(NamedTuple):
    """The heads of a model."""

    name: str
    heads: int
    kv_heads: int
    head_size: int


LLAMA = Model("Llama-3.1-8B", 32, 8, 128)
QWEN = Model("Qwen2.5-7B", 28, 4, 128)
SMOLLM = Model("SmolLM2-135M", 9, 3, 64)


class Case(NamedTuple):
    """One attention call."""

    query: Tensor
    cache: LayerCache
    step: StepContext


def build_case(
    model: Model,
    new_tokens: Sequence[int],
    total_tokens: Sequence[int],
    dtype: torch.dtype,
    device: str,
    block_tokens: int = 16,
) -> Case:
    """Random queries and a random cache, blocks in random order; what no sequence uses is NaN."""
    generator = torch.Generator(device).manual_seed(0)
    counts = [-(-total // block_tokens) for total in total_tokens]
    num_blocks = sum(counts) + 2
    order = torch.randperm(num_blocks - 1, generator=generator, device=device).int() + 1
    tables = order[: sum(counts)].split(counts)
    step = build_step(new_tokens, total_tokens, list(tables), device)
    shape = (num_blocks, block_tokens, model.kv_heads, model.head_size)
    cache = LayerCache(*(torch.full(shape, float("nan"), dtype=dtype, device=device) for _ in range(2)))
    for table, total in zip(tables, total_tokens):
        places = torch.arange(total, device=device)
        blocks, offsets = table[places // block_tokens].long(), places % block_tokens
        for part in cache:
            size = (total, *shape[2:])
            part[blocks, offsets] = torch.randn(size, generator=generator, device=device).to(dtype)
    size = (sum(new_tokens), model.heads, model.head_size)
    return Case(torch.randn(size, generator=generator, device=device).to(dtype), cache, step)


def build_step(
    new_tokens: Sequence[int], total_tokens: Sequence[int], tables: Sequence[Tensor], device: str
) -> StepContext:
    """What attention reads of a step."""
    starts = list(accumulate(new_tokens, initial=0))
    nothing = torch.empty(0, dtype=torch.int64, device=device)
    return StepContext(
        token_ids=nothing,
        positions=nothing,
        slots=nothing,
        block_tables=torch.nn.utils.rnn.pad_sequence(list(tables), batch_first=True),
        sequence_tokens=torch.tensor(total_tokens, dtype=torch.int32, device=device),
        query_starts=torch.tensor(starts, dtype=torch.int32, device=device),
        sample_rows=nothing,
        spans=tuple(SequenceSpan(*part) for part in zip(starts, new_tokens, total_tokens, tables)),
    )


def attention_by_definition(case: Case, dtype: torch.dtype) -> Tensor:
    """[T, heads · head_size], all of it computed in `dtype`: float64 for the truth, the inputs' own for a plain run."""
    out = torch.empty(case.query.shape, dtype=dtype, device=case.query.device)
    group = case.query.shape[1] // case.cache.keys.shape[2]
    for span in case.step.spans:
        keys, values = (
            part[span.block_ids.long()].flatten(0, 1)[: span.sequence_tokens].to(dtype).repeat_interleave(group, dim=1)
            for part in case.cache
        )
        query = case.query[span.rows].to(dtype)
        scores = torch.einsum("qhd,khd->hqk", query, keys) * query.shape[-1] ** -0.5
        weights = scores.masked_fill(~span.causal_mask, float("-inf")).softmax(-1)
        out[span.rows] = torch.einsum("hqk,khd->qhd", weights, values)
    return out.flatten(1)
