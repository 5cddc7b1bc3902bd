"""Steps that compute nothing of use, so that a GPU's kernels are compiled before the first request comes.

Triton compiles a kernel for each layout of tiles at its first use, about a second each, and keeps it on disk.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from backends.kernels.interface import SequenceSpan, StepContext

NEW_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Every number of rows that attention has a tile for, whatever the number of heads that share one of keys."""

LONG_CONTEXT_TOKENS = 4096
"""Enough for the context of one sequence to be split on any GPU."""


def idle_steps(block_tokens: int, device: str) -> Iterator[StepContext]:
    """Steps of one sequence, alone and after a long context. All lies in block 0, which holds nothing of anybody's."""
    for new_tokens in NEW_TOKENS:
        for all_tokens in (new_tokens, LONG_CONTEXT_TOKENS):
            yield idle_step(new_tokens, all_tokens, block_tokens, device)


def idle_step(new_tokens: int, all_tokens: int, block_tokens: int, device: str) -> StepContext:
    """`new_tokens` times token 0, the last of `all_tokens`; every slot of theirs is slot 0 and every block block 0."""
    zeros = torch.zeros(new_tokens, dtype=torch.int64, device=device)
    table = torch.zeros(1, -(-all_tokens // block_tokens), dtype=torch.int32, device=device)
    return StepContext(
        token_ids=zeros,
        positions=zeros,
        slots=zeros,
        block_tables=table,
        sequence_tokens=torch.tensor([all_tokens], dtype=torch.int32, device=device),
        query_starts=torch.tensor([0, new_tokens], dtype=torch.int32, device=device),
        sample_rows=zeros[:1],
        spans=(SequenceSpan(0, new_tokens, all_tokens, table[0]),),
    )
