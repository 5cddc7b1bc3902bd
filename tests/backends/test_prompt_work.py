"""What is done with a prompt alone: computing it without an answer, scoring its tokens, reading no cache."""

from __future__ import annotations

import pytest

from backends.simulated import SimulatedRunner, Timing
from tests.backends.core_builders import (
    Notes,
    answer,
    build_engine,
    build_prompt,
    build_request,
    expected_output,
    outputs,
    run_to_end,
)


@pytest.mark.parametrize("tokens", [1, 4, 13, 30])
def test_without_a_token_to_generate_the_prompt_is_computed_and_cached(tokens):
    """One delta says so, with the reason `length`; nothing is sampled."""
    notes, prompt = Notes(), build_prompt(tokens)
    engine = build_engine(max_batched_tokens=8, observer=notes)
    engine.add(build_request("a", prompt, max_tokens=0))
    (delta,) = run_to_end(engine)
    assert (delta.token_ids, delta.text, delta.finish_reason) == ((), "", "length")
    assert (delta.prompt_tokens, delta.cached_tokens, delta.completion_tokens) == (tokens, 0, 0)
    assert engine.stats().prompt_tokens == tokens
    assert (notes.first, notes.ends[0].completion_tokens) == ([], 0)
    assert answer(engine, "b", [*prompt, 1]).cached_tokens == tokens // 4 * 4


def test_several_answers_of_no_token_all_end():
    """A prompt with n = 2 and nothing to say."""
    engine = build_engine()
    engine.add(build_request("a", build_prompt(6), max_tokens=0, n=2))
    assert sorted(delta.choice for delta in run_to_end(engine)) == [0, 1]


def test_a_prompt_without_an_answer_may_fill_the_whole_length():
    """Case H-18: no token is generated, so none must fit."""
    engine = build_engine(max_model_tokens=20)
    assert answer(engine, "a", build_prompt(20), max_tokens=0).finish_reason == "length"


@pytest.mark.parametrize("changes", [{}, {"max_batched_tokens": 8}, {"enable_prefix_caching": False}])
def test_every_prompt_token_but_the_first_is_scored_once(changes):
    """Chunked or not; with the first token of the answer, and never again."""
    engine, prompt = build_engine(**changes), build_prompt(21)
    engine.add(build_request("a", prompt, prompt_logprobs=0, max_tokens=3))
    deltas = run_to_end(engine)
    assert [score.token_id for score in deltas[0].prompt_logprobs] == prompt[1:]
    assert [delta.prompt_logprobs for delta in deltas[1:]] == [None, None]
    assert outputs(deltas) == {"a": expected_output(prompt, 3)}


def test_prompt_logprobs_read_no_cache_and_do_not_count_as_a_miss():
    """Trap 17: a cached token has no logits."""
    engine, prompt = build_engine(), build_prompt(13)
    answer(engine, "a", prompt)
    queries = engine.stats().prefix_queries
    scored = answer(engine, "b", prompt, prompt_logprobs=1, max_tokens=1)
    assert scored.cached_tokens == 0
    assert len(scored.prompt_logprobs) == 12
    assert engine.stats().prefix_queries == queries


def test_a_prompt_of_one_token_has_no_scores():
    """But the answer says that there are none."""
    assert answer(build_engine(), "a", [1], prompt_logprobs=1, max_tokens=1).prompt_logprobs == ()


def test_scores_come_with_a_prompt_that_has_no_answer():
    """The only delta has them."""
    engine, prompt = build_engine(), build_prompt(9)
    assert len(answer(engine, "a", prompt, prompt_logprobs=1, max_tokens=0).prompt_logprobs) == 8


def test_all_siblings_get_the_scores_of_the_one_that_computed_the_prompt():
    """Also if it was preempted on the way."""
    engine, prompt = build_engine(num_blocks=8, max_batched_tokens=8), build_prompt(12)
    engine.add(build_request("old", build_prompt(15, seed=2), max_tokens=8))
    engine.step()
    engine.step()
    engine.add(build_request("a", prompt, n=2, max_tokens=2, prompt_logprobs=0))
    deltas = [delta for delta in run_to_end(engine) if delta.prompt_logprobs is not None]
    assert engine.stats().preemptions > 0
    assert sorted(delta.choice for delta in deltas) == [0, 1]
    assert [[score.token_id for score in delta.prompt_logprobs] for delta in deltas] == [prompt[1:]] * 2


def test_who_reads_no_cache_stores_all_the_same():
    """The next one hits."""
    engine, prompt = build_engine(), build_prompt(13)
    answer(engine, "a", prompt)
    assert engine.reset_prefix_cache()
    assert answer(engine, "b", prompt, reads_cache=False).cached_tokens == 0
    assert answer(engine, "c", prompt).cached_tokens == 12


def test_a_simulated_model_scores_prompts_too():
    """Every token is certain to it."""
    runner = SimulatedRunner(Timing(), lambda seconds: None)
    engine = build_engine(runner)
    last = answer(engine, "a", [1, 2, 3], prompt_logprobs=1, max_tokens=1)
    assert [(score.token_id, score.logprob) for score in last.prompt_logprobs] == [(2, 0.0), (3, 0.0)]
