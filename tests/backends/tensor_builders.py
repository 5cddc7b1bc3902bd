"""Small models, sequences, batches and caches for the tests of the tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backends.kernels.interface import Kernels, LayerCache, StepContext
from backends.kernels.reference import ReferenceKernels
from backends.model.config import LlamaConfig
from backends.model.llama import Llama
from backends.model.weights import LayerWeights, LlamaWeights
from backends.runner import TorchRunner
from backends.step_tensors import build_step
from backends.types import Batch, SampledToken, SamplingParams, ScheduledSequence
from tests.router.gguf_builder import text, value

GREEDY = SamplingParams(temperature=0.0)
TINY = LlamaConfig(
    layers=2, hidden_size=48, intermediate_size=64, heads=6, kv_heads=2, head_size=8,
    vocab_size=50, context_tokens=128, rope_base=10_000.0, norm_epsilon=1e-5,
)  # fmt: skip


@dataclass
class BuiltSequence:
    """A sequence as a runner sees it."""

    token_ids: list[int]
    block_ids: list[int]
    sampling: SamplingParams = GREEDY
    prompt_tokens: int = 0
    request_id: str = field(default="request")
    end_ids: frozenset[int] = frozenset()


def build_sequence(token_ids: Sequence[int], block_ids: Sequence[int], sampling: SamplingParams = GREEDY) -> Any:
    """A sequence whose tokens so far are all prompt."""
    return BuiltSequence(list(token_ids), list(block_ids), sampling, len(token_ids))


def build_weights(config: LlamaConfig = TINY, dtype: torch.dtype = torch.float32, seed: int = 0) -> LlamaWeights:
    """Random weights, with a head of its own."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator) * 0.2).to(dtype)

    hidden, attention = config.hidden_size, config.heads * config.head_size
    return LlamaWeights(
        embedding=random(config.vocab_size, hidden),
        layers=tuple(
            LayerWeights(
                attention_norm=random(hidden) + 1,
                qkv=random(config.qkv_size, hidden),
                attention_output=random(hidden, attention),
                mlp_norm=random(hidden) + 1,
                gate_up=random(2 * config.intermediate_size, hidden),
                down=random(hidden, config.intermediate_size),
            )
            for _ in range(config.layers)
        ),
        final_norm=random(hidden) + 1,
        head=random(config.vocab_size, hidden),
    )


def build_runner(
    num_blocks: int = 32, block_tokens: int = 4, kernels: Kernels | None = None, seed: int = 0
) -> TorchRunner:
    """A runner over a tiny random model, its cache allocated."""
    runner = TorchRunner(Llama(TINY, build_weights(seed=seed), kernels or ReferenceKernels()))
    runner.allocate(num_blocks, block_tokens)
    return runner


def run_chunk(runner: TorchRunner, sequence: Any, start: int, end: int) -> SampledToken | None:
    """Compute positions `start` to `end` of one sequence; sample when that is its last token."""
    samples = end == len(sequence.token_ids)
    return runner.execute(Batch([ScheduledSequence(sequence, start, end - start, samples)]))[0]


def generate(runner: TorchRunner, sequence: Any, count: int) -> list[int]:
    """Prefill a sequence and extend it by `count` tokens; its block table must have room."""
    start = 0
    for _ in range(count):
        token = run_chunk(runner, sequence, start, len(sequence.token_ids))
        assert token is not None
        start = len(sequence.token_ids)
        sequence.token_ids.append(token.token_id)
    return sequence.token_ids[-count:]


@dataclass(frozen=True)
class RaggedCase:
    """Inputs of one attention call: `new_tokens[i]` of `total_tokens[i]` tokens of sequence i are queries."""

    query: Tensor
    cache: LayerCache
    step: StepContext
    used_slots: Tensor


def build_ragged_case(
    new_tokens: Sequence[int],
    total_tokens: Sequence[int],
    *,
    heads: int = 9,
    kv_heads: int = 3,
    head_size: int = 64,
    block_tokens: int = 16,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    permuted: bool = True,
) -> RaggedCase:
    """Random queries and a random cache; blocks lie in random order unless `permuted` is False."""
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-total // block_tokens) for total in total_tokens]
    num_blocks = sum(counts) + 3
    order = torch.randperm(num_blocks - 1, generator=generator) + 1 if permuted else torch.arange(1, num_blocks)
    tables = [part.tolist() for part in order[: sum(counts)].split(counts)]
    items = [
        ScheduledSequence(build_sequence([0] * total, table), total - new, new, True)
        for new, total, table in zip(new_tokens, total_tokens, tables, strict=True)
    ]
    step = build_step(Batch(items), block_tokens)
    shape = (num_blocks, block_tokens, kv_heads, head_size)
    cache = LayerCache(*(torch.randn(shape, generator=generator).to(dtype) for _ in range(2)))
    query = torch.randn(sum(new_tokens), heads, head_size, generator=generator).to(dtype)
    used = [
        table[position // block_tokens] * block_tokens + position % block_tokens
        for table, total in zip(tables, total_tokens, strict=True)
        for position in range(total)
    ]
    return RaggedCase(query, cache, step, torch.tensor(used))


def naive_attention(case: RaggedCase) -> Tensor:
    """Attention by its definition, one token and one head at a time, in float64; [T, heads · head_size]."""
    _, heads, head_size = case.query.shape
    block_tokens, kv_heads = case.cache.keys.shape[1:3]
    out = torch.zeros(case.query.shape, dtype=torch.float64)
    for span, table in zip(case.step.spans, case.step.block_tables.tolist(), strict=True):
        for row in range(span.row_count):
            visible = span.sequence_tokens - span.row_count + row + 1
            places = [(table[at // block_tokens], at % block_tokens) for at in range(visible)]
            keys = torch.stack([case.cache.keys[place] for place in places]).double()
            values = torch.stack([case.cache.values[place] for place in places]).double()
            for head in range(heads):
                shared = head * kv_heads // heads
                query = case.query[span.first_row + row, head].double()
                weights = (keys[:, shared] @ query / head_size**0.5).softmax(0)
                out[span.first_row + row, head] = weights @ values[:, shared]
    return out.flatten(1)


RawTensor = tuple[tuple[int, ...], int, bytes]
"""Shape outermost first, ggml type, data."""


def write_model_gguf(path: Path, pairs: dict[str, tuple[int, Any]], tensors: dict[str, RawTensor]) -> Path:
    """A GGUF file whose tensors may be of any ggml type."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for key, (kind, content) in pairs.items():
        head += text(key) + struct.pack("<I", kind) + value(kind, content)
    data = b""
    for name, (shape, ggml_type, raw) in tensors.items():
        data += b"\0" * (-len(data) % 32)
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", ggml_type, len(data))
        data += raw
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return path
