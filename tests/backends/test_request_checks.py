"""Requests that could never run are refused at the door, with the numbers that tell why."""

from __future__ import annotations

import pytest

from backends.engine_config import EngineConfig
from backends.request_checks import check_policy, check_token_ids, checked_max_tokens, checked_tokens
from backends.retention import CachePolicy, Retention
from backends.types import RequestRefusedError, SamplingParams
from tests.backends.core_builders import build_engine, build_request


def test_prompt_and_answer_may_fill_the_limit_exactly():
    """Case H-18: prompt + max_tokens = limit is taken."""
    assert checked_max_tokens(build_request(prompt=[1] * 6, max_tokens=4), 10) == 4


def test_one_token_too_many_is_refused_with_both_numbers():
    """Case H-18: the message says how long the prompt is, what was asked and what fits."""
    with pytest.raises(RequestRefusedError, match=r"7 tokens and 4 .* 10") as refusal:
        checked_max_tokens(build_request(prompt=[1] * 7, max_tokens=4), 10)
    assert refusal.value.param == "max_tokens"


def test_a_prompt_that_leaves_no_room_is_the_prompts_fault():
    """Without max_tokens too there must be room for one token."""
    with pytest.raises(RequestRefusedError) as refusal:
        checked_max_tokens(build_request(prompt=[1] * 10, max_tokens=None), 10)
    assert refusal.value.param == "prompt"


def test_without_a_bound_the_answer_may_fill_what_is_left():
    """`max_tokens` None is all that fits."""
    assert checked_max_tokens(build_request(prompt=[1] * 6, max_tokens=None), 10) == 4


@pytest.mark.parametrize(("settings", "param"), [({"max_tokens": -1}, "max_tokens"), ({"n": 0}, "n")])
def test_nothing_asked_is_refused(settings, param):
    """No token or no answer cannot be generated."""
    with pytest.raises(RequestRefusedError) as refusal:
        checked_max_tokens(build_request(**settings), 10)
    assert refusal.value.param == param


@pytest.mark.parametrize("prompt", [[], [50], [-1], [1 << 32], [0, 99, 0]])
def test_prompts_the_model_cannot_read_are_refused(prompt):
    """Empty, or with ids beyond the vocabulary."""
    with pytest.raises(RequestRefusedError) as refusal:
        checked_tokens(prompt, 50)
    assert refusal.value.param == "prompt"


def test_a_request_that_could_never_fit_the_pool_is_refused_up_front():
    """Trap 11: it would preempt everybody, and then itself, for ever."""
    engine = build_engine(num_blocks=5, max_model_tokens=1000)
    engine.add(build_request("fits", [1] * 12, max_tokens=4))
    with pytest.raises(RequestRefusedError, match="16 that fit"):
        engine.add(build_request("too long", [1] * 12, max_tokens=5))
    assert engine.stats().waiting == 1


def test_two_requests_of_one_id_are_refused():
    """Their deltas could not be told apart."""
    engine = build_engine()
    engine.add(build_request("a"))
    with pytest.raises(RequestRefusedError, match="'a' is in use"):
        engine.add(build_request("a"))


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_blocks": 1},
        {"block_tokens": 0},
        {"max_sequences": 0},
        {"max_model_tokens": 1},
        {"max_sequences": 9, "max_batched_tokens": 8},
    ],
)
def test_sizes_with_which_nothing_runs_are_refused(sizes):
    """A configuration error is told at start, not as a hang."""
    with pytest.raises(ValueError, match=r"nothing fits|below max_sequences"):
        EngineConfig(**{"num_blocks": 9, "max_model_tokens": 64, **sizes})


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (SamplingParams(logit_bias=((10, 1.0),)), "logit_bias"),
        (SamplingParams(allowed_token_ids=(1, -1)), "allowed_token_ids"),
        (SamplingParams(stop_token_ids=(3, 10)), "stop_token_ids"),
    ],
)
def test_a_rule_about_an_unknown_token_is_refused(sampling: SamplingParams, param: str):
    """Else it would fail a step, and with it everybody in it."""
    with pytest.raises(RequestRefusedError, match="0 to 9") as refusal:
        check_token_ids(sampling, 10)
    assert refusal.value.param == param


def test_rules_about_known_tokens_are_taken():
    """The first and the last id, and no rules at all."""
    check_token_ids(SamplingParams(), 10)
    check_token_ids(SamplingParams(logit_bias=((0, 1.0), (9, 1.0)), stop_token_ids=(9,), allowed_token_ids=(0,)), 10)


def test_a_pin_without_an_end_is_refused():
    """Every other wish may stand without a time."""
    with pytest.raises(RequestRefusedError, match="time to live"):
        check_policy(CachePolicy(Retention.PIN))
    check_policy(CachePolicy(Retention.PIN, ttl_seconds=1.0))
    check_policy(CachePolicy(Retention.PRIORITY))
