"""Logprobs of tokens and of the best alternatives beside them: the model's own, before any rule or temperature."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backends.types import SampledToken

ROWS_AT_ONCE = 64
"""A prompt may have thousands of rows, and a row is a whole vocabulary."""


def with_logprobs(logits: Tensor, token_ids: Sequence[int], counts: Sequence[int]) -> list[SampledToken]:
    """For each row of `logits` [rows, vocab] its token with logprob and rank, and its `counts[row]` best tokens.

    The rank counts the tokens that are at least as probable, as vLLM's does.
    """
    found: list[SampledToken] = []
    for start in range(0, len(token_ids), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        found += _rows(logits[rows], token_ids[rows], counts[rows])
    return found


def _rows(logits: Tensor, token_ids: Sequence[int], counts: Sequence[int]) -> list[SampledToken]:
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(token_ids, device=logits.device).unsqueeze(1))
    ranks = (logprobs >= chosen).sum(-1).tolist()
    values, ids = logprobs.topk(min(max(counts), logits.shape[1]))
    best = zip(ids.tolist(), values.tolist(), strict=True)
    return [
        SampledToken(token_id, logprob, tuple(zip(row_ids[:count], row_values[:count], strict=True)), rank)
        for token_id, logprob, rank, count, (row_ids, row_values) in zip(
            token_ids, chosen.squeeze(1).tolist(), ranks, counts, best, strict=True
        )
    ]
