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
    assert caught.value.message == f"{name} is not supported by this worker; leave it out."


def test_values_that_change_nothing_are_taken():
    """Clients send many fields with their defaults."""
    for name, harmless in UNSUPPORTED.items():
        for value in (*harmless, None):
            refuse_unsupported(Fields({name: value}))


def test_what_would_change_the_answer_is_not_quietly_left_out():
    """Fields of vLLM that this worker does not carry out."""
    for name in ("include_stop_str_in_output", "return_token_ids", "return_tokens_as_token_ids"):
        with pytest.raises(ApiError, match=name):
            refuse_unsupported(Fields({name: True}))
