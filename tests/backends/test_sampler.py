"""Choosing tokens: greedy, the support of top-k and top-p, seeds that mean the same everywhere, logprobs."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.sampler import choose_tokens, uniform
from backends.sampler_draw import candidates
from backends.sampler_rules import Draw
from backends.types import SamplingParams

VOCAB = 1000


def build_logits(rows: int = 1, seed: int = 0, vocab_size: int = VOCAB) -> torch.Tensor:
    return torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def draw_once(logits: torch.Tensor, index: int = 0, **sampling: object) -> int:
    return choose_tokens(logits.unsqueeze(0), [Draw(SamplingParams(**sampling), index)])[0].token_id


@pytest.mark.parametrize("temperature", [0.0, 1e-9])
def test_greedy_is_the_best_token(temperature: float):
    """Temperature 0, or so little that dividing by it would overflow, takes the argmax of every row."""
    logits = build_logits(5)
    draws = [Draw(SamplingParams(temperature=temperature, seed=row), row) for row in range(5)]
    assert [token.token_id for token in choose_tokens(logits, draws)] == logits.argmax(-1).tolist()


@given(seed=st.integers(0, 50), top_k=st.integers(0, 20), top_p=st.floats(0.01, 1.0), index=st.integers(0, 1000))
@settings(max_examples=150, deadline=None)
def test_a_drawn_token_is_among_the_candidates(seed: int, top_k: int, top_p: float, index: int):
    """Never outside the k best, never outside the nucleus."""
    logits = build_logits(seed=seed)[0]
    token = draw_once(logits, index, temperature=0.8, top_k=top_k, top_p=top_p, seed=seed)
    _, ids = candidates(logits / 0.8, top_k, top_p)
    assert token in ids.tolist()
    if top_k:
        assert token in logits.topk(top_k).indices.tolist()


def test_a_tiny_top_p_leaves_the_best_token():
    """The nucleus is never empty."""
    logits = build_logits()[0]
    assert candidates(logits, 0, 1e-12)[1].tolist() == [int(logits.argmax())]
    assert draw_once(logits, top_p=1e-12) == int(logits.argmax())


def test_bounds_larger_than_the_vocabulary_are_no_bounds():
    """top_k above the vocabulary's size is off."""
    logits = build_logits(vocab_size=7)[0]
    assert len(candidates(logits, 100, 1.0)[1]) == 7
    assert 0 <= draw_once(logits, top_k=100, top_p=0.99) < 7


def test_tokens_come_as_often_as_they_should():
    """Frequencies of 4,000 draws follow the probabilities."""
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = probabilities.log().repeat(4000, 1)
    draws = [Draw(SamplingParams(seed=5), index) for index in range(4000)]
    counts = Counter(token.token_id for token in choose_tokens(logits, draws))
    for token_id, probability in enumerate(probabilities.tolist()):
        assert counts[token_id] / 4000 == pytest.approx(probability, abs=0.03)


def test_a_token_without_probability_is_never_drawn():
    """A logit of minus infinity, first or last, stays out."""
    logits = torch.tensor([float("-inf"), 1.0, 1.0, float("-inf")])
    drawn = {draw_once(logits, index, seed=3) for index in range(200)}
    assert drawn == {1, 2}


@given(seed=st.integers(0, 1000), min_p=st.floats(0.001, 1.0))
@settings(max_examples=50, deadline=None)
def test_min_p_is_a_share_of_the_best_tokens_probability(seed: int, min_p: float):
    """Nothing below it is drawn; at 1 only the best is left."""
    logits = build_logits(seed=seed)[0]
    probabilities = (logits / 0.8).softmax(0)
    for index in range(10):
        token = draw_once(logits, index, temperature=0.8, min_p=min_p, seed=seed)
        assert probabilities[token] >= min_p * probabilities.max() * 0.999
    assert draw_once(logits, min_p=1.0) == int(logits.argmax())


def test_heat_flattens_and_cold_sharpens():
    """A high temperature draws more different tokens than a low one."""
    logits = build_logits()[0]
    different = {
        temperature: len({draw_once(logits, index, temperature=temperature, seed=1) for index in range(200)})
        for temperature in (0.3, 3.0)
    }
    assert different[0.3] < different[3.0] / 2


def test_a_seed_gives_the_same_tokens_in_any_batch():
    """Neighbours, their number and the row's place in the batch change nothing."""
    rows = build_logits(6)
    params = SamplingParams(temperature=0.9, top_p=0.95, seed=42)
    alone = [choose_tokens(rows[row : row + 1], [Draw(params, row)])[0] for row in range(6)]
    together = choose_tokens(rows, [Draw(params, row) for row in range(6)])
    reverse = choose_tokens(rows.flip(0), [Draw(params, row) for row in reversed(range(6))])[::-1]
    assert alone == together == reverse


def test_seeds_and_places_draw_differently():
    """Another seed, or another place in the answer, is another number in [0, 1)."""
    numbers = {uniform(seed, index) for seed in (-1, 0, 1, 2**70) for index in range(250)}
    assert len(numbers) == 1000
    assert min(numbers) >= 0.0
    assert max(numbers) < 1.0
    assert sum(numbers) / 1000 == pytest.approx(0.5, abs=0.05)


def test_without_a_seed_nothing_repeats():
    """Two unseeded requests differ."""
    assert len({uniform(None, 0) for _ in range(50)}) == 50


def test_logprobs_are_the_model_s_own():
    """Of the logits before temperature and bounds; best first; the chosen token's too, should it not be among them."""
    logits = build_logits(2)
    sampling = SamplingParams(temperature=5.0, top_k=500, seed=9, logprobs=3)
    tokens = choose_tokens(logits, [Draw(sampling, 0), Draw(SamplingParams(temperature=0), 0)])
    want = logits[0].log_softmax(0)
    assert tokens[0].logprob == pytest.approx(float(want[tokens[0].token_id]))
    assert [token_id for token_id, _ in tokens[0].top] == want.topk(3).indices.tolist()
    assert [value for _, value in tokens[0].top] == pytest.approx(want.topk(3).values.tolist())
    assert tokens[1].logprob is None
    assert tokens[1].top == ()


def test_no_alternatives_are_given_when_none_are_asked():
    """`logprobs: 0` is the chosen token's alone."""
    logits = build_logits()
    token = choose_tokens(logits, [Draw(SamplingParams(temperature=0, logprobs=0), 0)])[0]
    assert token.top == ()
    assert token.logprob == pytest.approx(float(logits[0].log_softmax(0).max()))


def test_logits_are_left_as_they_were():
    """The caller may look at them again."""
    logits = build_logits(2)
    before = logits.clone()
    choose_tokens(logits, [Draw(SamplingParams(top_k=5, top_p=0.5, logprobs=2), 0)] * 2)
    assert torch.equal(logits, before)
