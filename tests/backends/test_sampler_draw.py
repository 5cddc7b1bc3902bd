"""Drawing many rows together: each row gets what it would get alone, whatever its neighbours want."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.sampler_draw import FEW_CANDIDATES, FIRST_CANDIDATES, candidates, draw, draw_alone
from backends.types import SamplingParams

VOCAB = 1000


def build_logits(rows: int = 1, seed: int = 0, vocab_size: int = VOCAB) -> torch.Tensor:
    return torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * 3


def alone(logits: torch.Tensor, sampling: SamplingParams, fraction: float) -> int:
    """By the definition: temperature, min_p, then the candidates."""
    scaled = logits / sampling.temperature
    if sampling.min_p > 0:
        scaled = scaled.masked_fill(scaled < scaled.max() + math.log(sampling.min_p), float("-inf"))
    return draw_alone(scaled, sampling, fraction)


wishes = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, FEW_CANDIDATES, FEW_CANDIDATES + 1, FIRST_CANDIDATES, FIRST_CANDIDATES + 1, 5000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 1e-9]),
    min_p=st.sampled_from([0.0, 0.0, 0.05, 1.0]),
)
fractions = st.floats(0.0, 1.0, exclude_max=True)


@given(rows=st.lists(st.tuples(wishes, fractions), min_size=1, max_size=6), seed=st.integers(0, 30))
@settings(max_examples=80, deadline=None)
def test_a_row_in_a_batch_gets_what_it_gets_alone(rows: list[tuple[SamplingParams, float]], seed: int):
    """Every kind of bound beside every other; to the last bit, or a seed would mean different things.

    Where the definition's own rounding decides, the fraction stands on the border of two tokens: both are right.
    """
    logits = build_logits(len(rows), seed)
    together = draw(logits, [sampling for sampling, _ in rows], [fraction for _, fraction in rows])
    for row, (sampling, fraction) in enumerate(rows):
        by_itself = draw(logits[row : row + 1], [sampling], [fraction])[0]
        assert together[row] == by_itself
        near = {alone(logits[row], sampling, min(max(fraction + shift, 0.0), 1 - 1e-9)) for shift in (-1e-6, 0.0, 1e-6)}
        assert by_itself in near


def test_fractions_lead_from_the_best_token_to_the_last_candidate():
    """0 is the first; just below 1 the last that is left."""
    logits = torch.tensor([[1.0, 4.0, 3.0, 2.0]])
    for sampling, first, last in (
        (SamplingParams(top_k=2), 1, 2),
        (SamplingParams(top_p=0.8), 1, 2),
        (SamplingParams(), 0, 3),
    ):
        assert draw(logits, [sampling], [0.0]) == [first]
        assert draw(logits, [sampling], [1 - 2**-53]) == [last]


@given(seed=st.integers(0, 1000), top_p=st.floats(0.01, 0.999), spread=st.floats(0.01, 10.0))
@settings(max_examples=150, deadline=None)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(seed: int, top_p: float, spread: float):
    """Its mass reaches top_p; without its last token it would not. Also when it is larger than the first guess."""
    logits = build_logits(seed=seed)[0] * spread / 3
    probabilities, ids = candidates(logits, 0, top_p)
    full = logits.double().softmax(0)
    mass = full[ids].sum()
    assert mass >= top_p - 1e-5
    assert mass - full[ids[-1]] < top_p + 1e-5
    assert len(set(ids.tolist())) == len(ids)
    assert full[ids].min() >= full.topk(len(ids)).values[-1] - 1e-9
    assert (probabilities.double() - full[ids]).abs().max() < 1e-6


def test_a_flat_distribution_needs_a_full_sort():
    """A nucleus larger than the first candidates is found whole."""
    _, ids = candidates(torch.linspace(0, 0.01, VOCAB), 0, 0.9)
    assert FIRST_CANDIDATES < len(ids) == pytest.approx(0.9 * VOCAB, rel=0.01)


def test_top_p_is_taken_of_what_top_k_left():
    """As vLLM: the k best are rescaled first, then cut at top_p."""
    logits = torch.tensor([4.0, 3.0, 2.0, 1.0]).log()
    assert candidates(logits, 2, 0.6)[1].tolist() == [0, 1]
    assert candidates(logits, 2, 0.5)[1].tolist() == [0]
    assert candidates(logits, 0, 0.5)[1].tolist() == [0, 1]
