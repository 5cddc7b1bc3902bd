"""Bias, penalties and forbidden tokens: vLLM's definitions, row by row, whatever the neighbours want."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.sampler import choose_tokens
from backends.sampler_rules import Draw, apply_rules
from backends.types import SamplingParams, ScheduledSequence
from tests.backends.tensor_builders import build_sequence

VOCAB = 12


def build_logits(rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def by_definition(logits: torch.Tensor, draw: Draw) -> torch.Tensor:
    """One row, one token at a time, as OpenAI's and vLLM's documents say it."""
    sampling = draw.sampling
    output = draw.token_ids[len(draw.token_ids) - draw.output_index :]
    ruled = logits.tolist()
    for token in range(VOCAB):
        if sampling.allowed_token_ids is not None and token not in sampling.allowed_token_ids:
            ruled[token] = float("-inf")
        ruled[token] += dict(sampling.logit_bias).get(token, 0.0)
        if token in draw.token_ids:
            divides = ruled[token] > 0
            ruled[token] *= 1 / sampling.repetition_penalty if divides else sampling.repetition_penalty
        ruled[token] -= output.count(token) * sampling.frequency_penalty + (token in output) * sampling.presence_penalty
        if draw.output_index < sampling.min_tokens and token in (*draw.end_ids, *sampling.stop_token_ids):
            ruled[token] = float("-inf")
    return torch.tensor(ruled)


tokens = st.integers(0, VOCAB - 1)
samplings = st.builds(
    SamplingParams,
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -2.0]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
    logit_bias=st.dictionaries(tokens, st.sampled_from([-100.0, 2.5]), max_size=3).map(
        lambda bias: tuple(bias.items())
    ),
    allowed_token_ids=st.none() | st.lists(tokens, min_size=1, max_size=5, unique=True).map(tuple),
    min_tokens=st.integers(0, 3),
    stop_token_ids=st.lists(tokens, max_size=2).map(tuple),
)


@st.composite
def draws(draw: st.DrawFn) -> Draw:
    prompt, output = draw(st.lists(tokens, min_size=1, max_size=8)), draw(st.lists(tokens, max_size=6))
    return Draw(draw(samplings), len(output), prompt + output, draw(st.frozensets(tokens, max_size=2)))


@given(rows=st.lists(draws(), min_size=1, max_size=5), seed=st.integers(0, 9))
@settings(max_examples=150, deadline=None)
def test_the_rules_are_the_definitions_in_any_company(rows: list[Draw], seed: int):
    """Every row of a batch gets what it would get alone, by the definition."""
    logits = build_logits(len(rows), seed)
    ruled = apply_rules(logits, rows)
    for row, draw in enumerate(rows):
        torch.testing.assert_close(ruled[row], by_definition(logits[row], draw))


def test_without_rules_nothing_is_copied():
    """The greedy path costs one argmax, as before."""
    logits = build_logits(3)
    assert apply_rules(logits, [Draw(SamplingParams(), 5, [1] * 9, {2})] * 3) is logits


def test_the_logits_themselves_stay_as_they_were():
    """Logprobs are told of them."""
    logits = build_logits(2)
    before = logits.clone()
    sampling = SamplingParams(temperature=0, logit_bias=((5, 100.0),), logprobs=1)
    token = choose_tokens(logits, [Draw(sampling, 0, [1]), Draw(sampling, 0, [1])])[0]
    assert torch.equal(logits, before)
    assert token.token_id == 5
    assert token.logprob == pytest.approx(float(before[0].log_softmax(0)[5]))


def test_no_end_comes_before_min_tokens():
    """Neither the model's own end nor a request's stop token, greedy or drawn; then they may."""
    logits = torch.zeros(1, VOCAB)
    logits[0, 2], logits[0, 7] = 100.0, 90.0
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(temperature=temperature, min_tokens=2, stop_token_ids=(7,), seed=1)
        chosen = [choose_tokens(logits, [Draw(sampling, index, [1], {2})])[0].token_id for index in range(4)]
        assert not {2, 7} & set(chosen[:2])
        assert chosen[2:] == [2, 2]


def test_a_forbidden_token_cannot_be_bought_back():
    """What is not allowed stays out, whatever is added to it."""
    sampling = SamplingParams(temperature=0, allowed_token_ids=(4,), logit_bias=((9, 100.0),))
    assert choose_tokens(build_logits(), [Draw(sampling, 0, [1])])[0].token_id == 4


def test_penalties_count_the_output_and_repetition_the_prompt_too():
    """A token that stood only in the prompt is penalised by repetition alone."""
    logits = torch.ones(1, VOCAB)
    sampling = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=2.0)
    ruled = apply_rules(logits, [Draw(sampling, 3, [1, 6, 8, 6, 6])])[0]
    assert ruled[1] == 0.5
    assert ruled[6] == 0.5 - 0.5 - 2 * 0.25
    assert ruled[8] == 0.5 - 0.5 - 0.25
    assert ruled[0] == 1.0


def test_a_draw_is_what_its_scheduled_item_says():
    """Sampling, place in the answer, and all tokens so far."""
    sequence = build_sequence([1, 2, 3], [1])
    sequence.token_ids += [4, 5]
    sequence.end_ids = {9}
    draw = Draw.of(ScheduledSequence(sequence, 4, 1, True))
    assert (draw.sampling, draw.output_index) == (sequence.sampling, 2)
    assert (list(draw.token_ids), draw.end_ids) == ([1, 2, 3, 4, 5], {9})
