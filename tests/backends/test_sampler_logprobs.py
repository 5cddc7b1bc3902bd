"""Logprobs: values, ranks and alternatives, for a few rows or a whole prompt."""

from __future__ import annotations

import pytest
import torch

from backends.sampler import choose_tokens
from backends.sampler_logprobs import ROWS_AT_ONCE, with_logprobs
from backends.sampler_rules import Draw
from backends.types import SampledToken, SamplingParams


def build_logits(rows: int, vocab_size: int = 50) -> torch.Tensor:
    return torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(rows)) * 3


def test_each_row_gets_its_token_its_rank_and_as_many_as_it_asked_for():
    """Ranks from 1; zero alternatives are none."""
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 4.0, 3.0]])
    first, second = with_logprobs(logits, [2, 0], [2, 0])
    want = logits.log_softmax(-1)
    assert (first.token_id, first.rank, second.rank) == (2, 2, 1)
    assert first.logprob == pytest.approx(float(want[0, 2]))
    assert [token_id for token_id, _ in first.top] == [1, 2]
    assert second.top == ()


def test_a_long_prompt_is_told_piece_by_piece_alike():
    """More rows than are softened at once."""
    logits = build_logits(ROWS_AT_ONCE * 2 + 3)
    ids = [row % 50 for row in range(len(logits))]
    together = with_logprobs(logits, ids, [3] * len(ids))
    assert len(together) == len(ids)
    for row in (0, ROWS_AT_ONCE, len(ids) - 1):
        (alone,) = with_logprobs(logits[row : row + 1], [ids[row]], [3])
        assert together[row].token_id == alone.token_id
        assert together[row].rank == alone.rank
        assert together[row].logprob == pytest.approx(alone.logprob)


def test_more_alternatives_than_there_are_tokens_are_all_tokens():
    """The whole vocabulary, best first."""
    (token,) = with_logprobs(build_logits(1, vocab_size=7), [0], [100])
    assert len(token.top) == 7
    assert [value for _, value in token.top] == sorted((value for _, value in token.top), reverse=True)


def test_equally_probable_tokens_share_the_last_of_their_ranks():
    """As vLLM counts: those at least as probable."""
    (token,) = with_logprobs(torch.zeros(1, 4), [1], [0])
    assert token.rank == 4


def test_only_those_who_asked_are_told():
    """A batch of both kinds keeps its order."""
    logits = build_logits(3)
    draws = [Draw(SamplingParams(temperature=0, logprobs=wanted), 0) for wanted in (None, 2, None)]
    tokens = choose_tokens(logits, draws)
    assert tokens[0] == SampledToken(int(logits[0].argmax()))
    assert (tokens[1].rank, len(tokens[1].top)) == (1, 2)
    assert tokens[2].logprob is None
