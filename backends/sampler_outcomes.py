"""From a step's logits to what came of each of its items: a token, the scores of prompt tokens, both or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from backends.sampler import choose_tokens
from backends.sampler_logprobs import with_logprobs
from backends.sampler_rules import Draw
from backends.types import Outcome, PromptScores, SampledToken, ScheduledSequence


def outcomes(logits: Tensor, items: Sequence[ScheduledSequence]) -> list[Outcome]:
    """One outcome per item; `logits` [rows, vocab] hold each item's scored rows, then the row that samples."""
    draws = [Draw.of(item) for item in items if item.samples]
    if len(draws) == len(logits):
        tokens = iter(choose_tokens(logits, draws))
        return [next(tokens) if item.samples else None for item in items]
    scored, sampled = _rows(items)
    tokens = iter(choose_tokens(logits[sampled], draws))
    return [
        _outcome(item, logits[rows], next(tokens) if item.samples else None)
        for item, rows in zip(items, scored, strict=True)
    ]


def _rows(items: Sequence[ScheduledSequence]) -> tuple[list[slice], list[int]]:
    """The scored rows of each item, and the rows that sample."""
    scored, sampled, row = [], [], 0
    for item in items:
        scored.append(slice(row, row + item.scored_rows))
        row += item.scored_rows
        if item.samples:
            sampled.append(row)
            row += 1
    return scored, sampled


def _outcome(item: ScheduledSequence, logits: Tensor, token: SampledToken | None) -> Outcome:
    count, wanted = item.scored_rows, item.sequence.sampling.prompt_logprobs
    if not count or wanted is None:
        return token
    following = item.sequence.token_ids[item.start_token + 1 : item.start_token + 1 + count]
    return PromptScores(tuple(with_logprobs(logits, following, [wanted] * count)), token)
