"""Any JSON under any of the names that a request may have is a call or a 400, never a fault of ours."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.api_errors import ApiError
from backends.openai_wire import Call, Endpoint, WireLimits, parse_call
from backends.sampling_fields import UNSUPPORTED

NAMES = [
    *("model", "messages", "prompt", "stream", "stream_options", "cache_salt", "tools", "max_tokens", "priority"),
    *("max_completion_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "ignore_eos", "logprobs"),
    *("top_logprobs", "n", "stop_token_ids", "skip_special_tokens", "min_tokens", "presence_penalty", "echo"),
    *("frequency_penalty", "repetition_penalty", "logit_bias", "prompt_logprobs", "allowed_token_ids", "documents"),
    *("include_stop_str_in_output", "return_token_ids", "return_tokens_as_token_ids", "vllm_xargs", "cache_policy"),
    *("prompt_cache_retention", "add_generation_prompt", "chat_template_kwargs", *UNSUPPORTED),
]
WORDS = ["pin", "no-store", "24h", "ephemeral", "5m", "user", "role", "content", "cache_control", "type", "text"]
INNER = [*WORDS, "ttl", "retention", "ttl_seconds", "until_token", "cache_policy", "cache_ttl_seconds", "7"]
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([10**400, -1, 0, 1])
leaves = st.none() | st.booleans() | numbers | st.text(max_size=5) | st.sampled_from(WORDS)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER) | st.text(), inner, max_size=3),
    max_leaves=8,
)


def parsed(endpoint: Endpoint, body: dict[str, Any]) -> Call | ApiError:
    try:
        return parse_call(endpoint, json.dumps(body).encode(), WireLimits(max_logprobs=None))
    except ApiError as error:
        return error


@given(fields=st.dictionaries(st.sampled_from(NAMES), values, max_size=4), endpoint=st.sampled_from(Endpoint))
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_request_is_a_call_or_a_400(fields: dict[str, Any], endpoint: Endpoint):
    """Beside a prompt that is sound, unless it is one of the fields."""
    sound = {"messages": [{"role": "user", "content": "x"}], "prompt": "x"}
    result = parsed(endpoint, {**sound, **fields})
    if isinstance(result, ApiError):
        assert result.status == 400
        assert result.body()["error"]["message"]
    else:
        assert result.prompts


@given(message=st.dictionaries(st.sampled_from(INNER), values, max_size=4))
@settings(max_examples=100, deadline=None)
def test_whatever_stands_in_a_message_is_a_call_or_a_400(message: dict[str, Any]):
    """Marks for the cache among it."""
    result = parsed(Endpoint.CHAT, {"messages": [{"role": "user", "content": "x", **message}]})
    assert isinstance(result, Call) or result.status == 400
