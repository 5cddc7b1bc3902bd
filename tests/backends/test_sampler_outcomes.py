"""Prompt logprobs out of a real forward pass: the same in one piece, in chunks, and beside others."""

from __future__ import annotations

import pytest

from backends.runner import TorchRunner
from backends.types import Batch, Outcome, PromptScores, SampledToken, SamplingParams, ScheduledSequence
from tests.backends.tensor_builders import GREEDY, build_runner, build_sequence, generate

SCORED = SamplingParams(temperature=0.0, prompt_logprobs=2, logprobs=1)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def run(runner: TorchRunner, *items: ScheduledSequence) -> list[Outcome]:
    return list(runner.execute(Batch(items)))


def scores_of(outcome: Outcome) -> PromptScores:
    assert isinstance(outcome, PromptScores)
    return outcome


def test_every_prompt_token_but_the_first_is_scored():
    """Its logprob and rank, and the best tokens of its place; the sampled token beside them."""
    sequence = build_sequence(PROMPT, [1, 2], SCORED)
    (outcome,) = run(build_runner(), ScheduledSequence(sequence, 0, 8, True))
    scores = scores_of(outcome)
    assert [score.token_id for score in scores.scores] == PROMPT[1:]
    for score in scores.scores:
        assert len(score.top) == 2
        assert score.rank is not None
        assert (score.rank == 1) == (score.token_id == score.top[0][0])
    assert scores.token is not None
    assert scores.token.token_id == generate(build_runner(), build_sequence(PROMPT, [1, 2]), 1)[0]
    assert scores.token.logprob is not None


@pytest.mark.parametrize("cut", [1, 3, 7])
def test_a_prompt_in_chunks_is_scored_alike(cut: int):
    """The last token of a chunk tells of the first of the next."""
    whole = scores_of(
        run(build_runner(), ScheduledSequence(build_sequence(PROMPT, [1, 2], SCORED), 0, 8, True))[0]
    ).scores
    runner, sequence = build_runner(), build_sequence(PROMPT, [1, 2], SCORED)
    first = scores_of(run(runner, ScheduledSequence(sequence, 0, cut, False))[0])
    assert first.token is None
    rest = run(runner, ScheduledSequence(sequence, cut, 8 - cut, True))[0]
    parts = first.scores + (scores_of(rest).scores if isinstance(rest, PromptScores) else ())
    assert [score.token_id for score in parts] == PROMPT[1:]
    assert [score.logprob for score in parts] == pytest.approx([score.logprob for score in whole], abs=1e-4)


def test_a_chunk_that_is_only_the_last_token_scores_nothing():
    """What follows it is sampled: a plain token."""
    runner, sequence = build_runner(), build_sequence(PROMPT, [1, 2], SCORED)
    run(runner, ScheduledSequence(sequence, 0, 7, False))
    (outcome,) = run(runner, ScheduledSequence(sequence, 7, 1, True))
    assert isinstance(outcome, SampledToken)


def test_neighbours_get_what_they_get_alone():
    """Scored, sampling, and neither, in one batch."""
    scored, plain, half = (
        build_sequence(PROMPT, [1, 2], SCORED),
        build_sequence([7, 8, 9], [3], GREEDY),
        build_sequence([7, 7, 7, 7], [4], GREEDY),
    )
    first, second, third = run(
        build_runner(),
        ScheduledSequence(half, 0, 2, False),
        ScheduledSequence(scored, 0, 8, True),
        ScheduledSequence(plain, 0, 3, True),
    )
    assert first is None
    assert len(scores_of(second).scores) == 7
    assert isinstance(third, SampledToken)
    assert [third.token_id] == generate(build_runner(), build_sequence([7, 8, 9], [3]), 1)


def test_an_end_token_waits_for_min_tokens():
    """A sequence knows its ends; the sampler holds them off."""
    (best,) = generate(build_runner(), build_sequence(PROMPT, [1, 2]), 1)
    held = build_sequence(PROMPT, [1, 2], SamplingParams(temperature=0.0, min_tokens=1))
    held.end_ids = frozenset({best})
    assert generate(build_runner(), held, 1) != [best]


def test_a_generated_text_has_the_same_logprobs_when_it_is_a_prompt():
    """What was told of each token while it was chosen, and what is told when the whole is scored afterwards."""
    sampling = SamplingParams(temperature=0.0, logprobs=0)
    runner, sequence = build_runner(), build_sequence(PROMPT, [1, 2, 3], sampling)
    told = []
    for start in (0, 8, 9, 10):
        item = ScheduledSequence(sequence, start, len(sequence.token_ids) - start, True)
        (token,) = run(runner, item)
        assert isinstance(token, SampledToken)
        told.append(token)
        sequence.token_ids.append(token.token_id)
    scored = build_sequence(sequence.token_ids, [1, 2, 3], SCORED)
    (outcome,) = run(build_runner(), ScheduledSequence(scored, 0, 12, True))
    scores = scores_of(outcome).scores[7:]
    assert [score.token_id for score in scores] == [token.token_id for token in told]
    assert [score.logprob for score in scores] == pytest.approx([token.logprob for token in told], abs=1e-4)
    assert {score.rank for score in scores} == {1}
