"""Sampling fields: ranges in vLLM's words, and what this worker does not do."""

from __future__ import annotations

from typing import Any

import pytest

from backends.api_errors import ApiError
from backends.request_fields import Fields
from backends.sampling_fields import UNSUPPORTED, read_sampling, refuse_unsupported


def read(**values: Any):
    return read_sampling(Fields(values), values.get("max_tokens"), values.get("logprobs"))


def test_everything_that_is_asked_reaches_the_sampler():
    """Each field by its own name."""
    sampling = read(
        temperature=0.5, top_p=0.9, top_k=40, seed=7, stop=["a", "b"], ignore_eos=True, n=3, max_tokens=9, logprobs=2
    )
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 40, 7)
    assert (sampling.stop, sampling.ignore_eos, sampling.n) == (("a", "b"), True, 3)
    assert (sampling.max_tokens, sampling.logprobs) == (9, 2)
    sampling = read(min_p=0.1, stop_token_ids=[7, 8])
    assert (sampling.min_p, sampling.stop_token_ids) == (0.1, (7, 8))
    assert sampling.skip_special_tokens
    assert not read(skip_special_tokens=False).skip_special_tokens


def test_a_single_stop_string_needs_no_list():
    """As OpenAI's."""
    assert read(stop="END").stop == ("END",)


@pytest.mark.parametrize("top_k", [-1, 0, None])
def test_top_k_is_off_in_all_spellings(top_k: int | None):
    """vLLM's -1, its newer 0, and nothing."""
    assert read(top_k=top_k).top_k == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)"),
        ({"temperature": -0.5}, "temperature must be non-negative, got -0.5. (parameter=temperature, value=-0.5)"),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)"),
        ({"top_p": 1.1}, "top_p must be in (0, 1], got 1.1. (parameter=top_p, value=1.1)"),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2. (parameter=top_k, value=-2)"),
        ({"min_p": 2}, "min_p must be in [0, 1], got 2.0. (parameter=min_p, value=2.0)"),
        ({"n": 0}, "n must be between 1 and 128, got 0. (parameter=n, value=0)"),
        ({"n": 129}, "n must be between 1 and 128, got 129. (parameter=n, value=129)"),
        ({"n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2. (parameter=n, value=2)"),
        ({"logprobs": 21}, "logprobs must be between 0 and 20, got 21. (parameter=logprobs, value=21)"),
        (
            {"presence_penalty": 2.5},
            "presence_penalty must be in [-2, 2], got 2.5. (parameter=presence_penalty, value=2.5)",
        ),
        (
            {"frequency_penalty": -3},
            "frequency_penalty must be in [-2, 2], got -3.0. (parameter=frequency_penalty, value=-3.0)",
        ),
        (
            {"repetition_penalty": 0},
            "repetition_penalty must be greater than zero, got 0.0. (parameter=repetition_penalty, value=0.0)",
        ),
        (
            {"min_tokens": 5, "max_tokens": 4},
            "min_tokens must be less than or equal to max_tokens=4, got 5. (parameter=min_tokens, value=5)",
        ),
        (
            {"min_tokens": -1},
            "min_tokens must be greater than or equal to 0, got -1. (parameter=min_tokens, value=-1)",
        ),
        (
            {"prompt_logprobs": 21},
            "prompt_logprobs must be between 0 and 20, got 21. (parameter=prompt_logprobs, value=21)",
        ),
        ({"allowed_token_ids": []}, "allowed_token_ids is not None and empty! (parameter=allowed_token_ids)"),
        ({"stop": ""}, "stop cannot contain an empty string. (parameter=stop)"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(fields: dict[str, Any], message: str):
    """The caller learns the field, the rule and the value."""
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", "hot"), ("top_k", 1.5), ("n", True), ("seed", "x")),
        *(("stop", [1]), ("ignore_eos", "yes"), ("stop_token_ids", ["x"])),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any):
    """By the field's place in the body."""
    with pytest.raises(ApiError) as caught:
        read(**{name: value})
    assert caught.value.param == f"body.{name}"


@pytest.mark.parametrize("name", list(UNSUPPORTED))
def test_what_cannot_be_done_is_refused_by_name(name: str):
    """An honest 400 beats an answer that ignored the wish."""
    with pytest.raises(ApiError) as caught:
        refuse_unsupported(Fields({name: ["something"]}))
    assert caught.value.message.startswith(f"{name} is not supported by this worker")
    assert caught.value.message.endswith("; leave it out.")
    assert caught.value.param == name


def test_values_that_change_nothing_are_taken():
    """Clients send many fields with their defaults."""
    for name, harmless in UNSUPPORTED.items():
        for value in (*harmless, None):
            refuse_unsupported(Fields({name: value}))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"response_format": {"type": "json_object"}}, "no structured output"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "no structured output"),
        ({"structured_outputs": {"regex": "a"}}, "no structured output"),
        ({"guided_choice": ["a", "b"]}, "no structured output"),
        ({"tool_choice": "required"}, "cannot make it call one"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "cannot make it call one"),
        ({"function_call": {"name": "f"}}, "cannot make it call one"),
    ],
)
def test_a_form_that_cannot_be_kept_is_refused_with_the_reason(fields: dict[str, Any], reason: str):
    """A caller who asks for JSON would else get prose."""
    with pytest.raises(ApiError, match=reason):
        refuse_unsupported(Fields(fields))


def test_penalties_bias_and_bounds_reach_the_sampler():
    """Each by its own name; a bias beyond 100 counts as 100, as in vLLM."""
    sampling = read(
        presence_penalty=0.5, frequency_penalty=-2, repetition_penalty=1.1, min_tokens=3, prompt_logprobs=1,
        logit_bias={"7": 5, "8": -1000}, allowed_token_ids=[7, 8, 9], include_stop_str_in_output=True,
    )  # fmt: skip
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (0.5, -2.0, 1.1)
    assert (sampling.min_tokens, sampling.prompt_logprobs) == (3, 1)
    assert sampling.logit_bias == ((7, 5.0), (8, -100.0))
    assert (sampling.allowed_token_ids, sampling.include_stop_str_in_output) == ((7, 8, 9), True)


@pytest.mark.parametrize("bias", [{"a": 1}, {"1.5": 1}, {"-1": 1}, {" 7": 1}, {"7": "x"}, {"7": True}, {"7": None}])
def test_a_bias_maps_token_ids_to_numbers(bias: dict[str, Any]):
    """Anything else is refused by the field's name."""
    with pytest.raises(ApiError) as caught:
        read(logit_bias=bias)
    assert caught.value.param == "logit_bias"


def test_numbers_of_any_size_are_no_fault_of_ours():
    """JSON has them; a float has not."""
    for fields in ({"temperature": 10**400}, {"logit_bias": {"7": 10**400}}, {"top_p": -(10**400)}):
        with pytest.raises(ApiError):
            read(**fields)


def test_token_ids_are_named_once_each():
    """A request cannot make every step go through more of them than the model has."""
    sampling = read(allowed_token_ids=[7, 5] * 1000, stop_token_ids=[3] * 1000)
    assert (sampling.allowed_token_ids, sampling.stop_token_ids) == ((7, 5), (3,))
