"""Request bodies: what they ask for, and what is refused in which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backends.api_errors import ApiError, BadRequestError, InvalidBodyError
from backends.openai_wire import Call, Endpoint, WireLimits, parse_call
from backends.retention import Retention
from backends.sampling_fields import WHOLE_VOCABULARY
from tests.backends.server_builders import recorded

MESSAGES = [{"role": "user", "content": "hello"}]


def chat(**fields: Any) -> Call:
    return parse_call(Endpoint.CHAT, json.dumps({"messages": MESSAGES, **fields}).encode())


def completion(**fields: Any) -> Call:
    return parse_call(Endpoint.COMPLETIONS, json.dumps({"prompt": "hello", **fields}).encode())


def refusal_of(endpoint: Endpoint, fields: dict[str, Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse_call(endpoint, json.dumps(fields).encode())
    return caught.value


def test_a_bare_chat_gets_vllms_defaults():
    """Temperature 1, one answer, as many tokens as fit."""
    call = chat()
    assert call.sampling.temperature == 1.0
    assert call.sampling.max_tokens is None
    assert (call.sampling.n, call.sampling.top_p, call.sampling.top_k, call.sampling.logprobs) == (1, 1.0, 0, None)
    assert not call.stream
    assert call.prompts[0].messages == MESSAGES


def test_a_bare_completion_generates_sixteen_tokens():
    """As OpenAI's and vLLM's."""
    assert completion().sampling.max_tokens == 16


@pytest.mark.parametrize("prompt", ["text", [1, 2, 3]])
def test_one_prompt_is_a_batch_of_one(prompt: Any):
    """D-10: a text, or token ids."""
    assert [source.prompt for source in completion(prompt=prompt).prompts] == [prompt]


@pytest.mark.parametrize("batch", [["a", "b"], [[1, 2], [3]]])
def test_a_batch_is_taken_apart(batch: Any):
    """D-10: texts, or lists of token ids."""
    assert [source.prompt for source in completion(prompt=batch).prompts] == batch


@pytest.mark.parametrize("prompt", [None, "", [], ["a", ""], [[1], []]])
def test_an_empty_prompt_is_refused_in_vllms_words(prompt: Any):
    """D-10: 400, never 500."""
    error = refusal_of(Endpoint.COMPLETIONS, {"prompt": prompt})
    assert (error.status, error.message) == (400, "Either prompt or prompt_embeds must be provided and non-empty.")


@pytest.mark.parametrize("prompt", [7, {"a": 1}, ["a", 1], [1, "a"], [[1], "a"], [[1.5]], [[True]], [None]])
def test_a_prompt_of_another_kind_is_refused(prompt: Any):
    """D-10: mixed and nested batches."""
    assert refusal_of(Endpoint.COMPLETIONS, {"prompt": prompt}).param == "body.prompt"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"",
        b"7",
        b'{"messages":null}',
        b'{"messages":[1]}',
        b'{"messages":[]}',
        b"{}",
        b'{"messages":"\xff"}',
        b"[" * 5000 + b"]" * 5000,
        b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"messages":[{"content":"no role"}]}',
        b'{"messages":[{"role":"user","content":7}]}',
        b'{"messages":[{"role":"user","content":[7]}]}',
        b'{"messages":[{"role":"user","content":[{"type":"text"}]}]}',
    ],
    ids=range(17),
)
def test_a_malformed_body_is_refused_in_vllms_shape(body: bytes):
    """D-15: 400 with `{"error": {...}}`, whatever comes."""
    with pytest.raises(InvalidBodyError) as caught:
        parse_call(Endpoint.CHAT, body)
    error = json.loads(caught.value.json())["error"]
    assert (error["type"], error["code"]) == ("Bad Request", 400)
    assert error["message"].startswith("1 validation error:\n")


def test_a_wrong_type_is_worded_as_vllm_without_the_input():
    """The recorded message, less its last part, which quotes what the caller sent."""
    exchange = recorded("error_bad_type")
    expected = json.loads(exchange["body"])["error"]
    error = refusal_of(Endpoint.CHAT, exchange["request"]).body()["error"]
    assert error == {**expected, "message": expected["message"].replace(", 'input': 'hello'", "")}


@pytest.mark.parametrize("name", ["error_bad_salt", "error_n_zero"])
def test_refused_values_are_worded_as_recorded(name: str):
    """Byte for byte."""
    exchange = recorded(name)
    assert refusal_of(Endpoint.CHAT, exchange["request"]).json().decode() == exchange["body"]


@pytest.mark.parametrize("salt", ["", 7, [], "a/b", "a@b", "a\\b", "a\0b", "x" * 129])
def test_a_salt_that_vllm_refuses_is_refused(salt: Any):
    """Empty or no string in every version, long or with separators from 0.33 on."""
    assert refusal_of(Endpoint.CHAT, {"messages": MESSAGES, "cache_salt": salt}).param == "cache_salt"


def test_a_good_salt_is_kept():
    """Up to 128 characters of anything else."""
    assert chat(cache_salt="t" * 128).cache_salt == "t" * 128
    assert chat(cache_salt=None).cache_salt is None


def test_unknown_fields_and_vllm_extras_are_ignored():
    """As vLLM ignores them."""
    call = chat(vllm_xargs={"invented": 1}, user="u", store=True, prompt_cache_key="k", invented={"x": [1]})
    assert call == chat()


def test_priority_and_wishes_for_the_cache_are_read():
    """vLLM's `priority`, a policy, a partition that the operator knows."""
    body = {"prompt": "x", "priority": -3, "cache_policy": "no-store", "vllm_xargs": {"cache_partition": "support"}}
    call = parse_call(Endpoint.COMPLETIONS, json.dumps(body).encode(), WireLimits(partitions=("", "support")))
    assert call.priority == -3
    assert (call.wish.policy.retention, call.wish.partition) == (Retention.NO_STORE, "support")
    assert refusal_of(Endpoint.COMPLETIONS, body).param == "vllm_xargs.cache_partition"


def test_a_mark_for_the_cache_is_no_part_of_the_prompt():
    """The template sees the message without it, and the wish covers the messages up to it."""
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    call = chat(messages=[{"role": "system", "content": [part]}, *MESSAGES])
    assert call.prompts[0].messages[0] == {"role": "system", "content": [{"type": "text", "text": "a"}]}
    assert call.wish.marked_messages == 1


def test_token_ids_and_the_prompts_scores_are_asked_for():
    """`return_token_ids`, `return_tokens_as_token_ids`, `prompt_logprobs`; the last not in a stream, as vLLM."""
    call = chat(return_token_ids=True, return_tokens_as_token_ids=True, prompt_logprobs=0)
    assert (call.returns_token_ids, call.names_tokens_by_id, call.sampling.prompt_logprobs) == (True, True, 0)
    error = refusal_of(Endpoint.CHAT, {"messages": MESSAGES, "stream": True, "prompt_logprobs": 1})
    assert error.message.startswith("`prompt_logprobs` are not available when `stream=True`.")


def test_an_echo_may_have_no_answer_and_scores_the_prompt_with_logprobs():
    """What evaluation harnesses send: `echo`, `logprobs`, `max_tokens: 0`."""
    call = completion(echo=True, logprobs=2, max_tokens=0)
    assert (call.echo, call.sampling.max_tokens, call.sampling.prompt_logprobs) == (True, 0, 2)
    assert completion(echo=True).sampling.prompt_logprobs is None
    assert refusal_of(Endpoint.COMPLETIONS, {"prompt": "x", "max_tokens": 0}).param == "max_tokens"
    assert refusal_of(Endpoint.COMPLETIONS, {"prompt": "x", "echo": True, "stream": True}).param == "echo"


def test_the_operator_bounds_logprobs():
    """--max-logprobs, for all three fields; without a bound -1 asks for the whole vocabulary."""
    body = json.dumps({"prompt": "x", "logprobs": 5}).encode()
    with pytest.raises(ApiError, match="between 0 and 4"):
        parse_call(Endpoint.COMPLETIONS, body, WireLimits(max_logprobs=4))
    body = json.dumps({"messages": MESSAGES, "logprobs": True, "top_logprobs": -1, "prompt_logprobs": 300}).encode()
    sampling = parse_call(Endpoint.CHAT, body, WireLimits(max_logprobs=None)).sampling
    assert (sampling.logprobs, sampling.prompt_logprobs) == (WHOLE_VOCABULARY, 300)


def test_max_completion_tokens_wins_over_max_tokens():
    """OpenAI's newer name."""
    assert chat(max_tokens=5, max_completion_tokens=7).sampling.max_tokens == 7
    assert chat(max_tokens=5).sampling.max_tokens == 5
    assert completion(max_tokens=5, max_completion_tokens=7).sampling.max_tokens == 5


def test_stream_options_need_a_stream():
    """vLLM's words."""
    error = refusal_of(Endpoint.CHAT, {"messages": MESSAGES, "stream_options": {"include_usage": True}})
    assert error.message == "Stream options can only be defined when `stream=True`."


def test_usage_in_a_stream_is_asked_for():
    """Whole, or with every chunk."""
    call = chat(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert (call.stream, call.include_usage, call.continuous_usage) == (True, True, True)
    assert not chat(stream=True, stream_options={"continuous_usage_stats": True}).continuous_usage
    assert not chat(stream=True).include_usage


def test_logprobs_are_asked_for_in_two_dialects():
    """A flag and a count in chats, a count in completions."""
    assert chat(logprobs=True).sampling.logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).sampling.logprobs == 3
    assert chat(logprobs=False).sampling.logprobs is None
    assert completion(logprobs=2).sampling.logprobs == 2
    assert refusal_of(Endpoint.CHAT, {"messages": MESSAGES, "top_logprobs": 2}).param == "top_logprobs"


def test_parts_of_text_are_taken_and_images_are_not():
    """This worker has no eyes."""
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "refusal", "refusal": "c"}]
    assert chat(messages=[{"role": "user", "content": parts}]).prompts[0].messages[0]["content"] == parts
    image = [{"type": "image_url", "image_url": {"url": "data:x"}}]
    error = refusal_of(Endpoint.CHAT, {"messages": [{"role": "user", "content": image}]})
    assert isinstance(error, BadRequestError)
    assert "text parts" in error.message


def test_an_assistant_turn_may_have_no_content():
    """A turn of nothing but tool calls."""
    turns = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": []}, {"role": "assistant"}]
    assert len(chat(messages=turns).prompts[0].messages) == 3


def test_template_arguments_reach_the_template():
    """`chat_template_kwargs`, documents and tools, as they are."""
    tool = {"type": "function", "function": {"name": "f"}}
    call = chat(chat_template_kwargs={"thinking": False}, documents=[{"text": "d"}], tools=[tool])
    assert call.prompts[0].template_arguments == {"thinking": False, "documents": [{"text": "d"}]}
    assert call.prompts[0].tools == [tool]
    assert refusal_of(Endpoint.CHAT, {"messages": MESSAGES, "tools": ["f"]}).param == "body.tools"


def test_an_error_never_quotes_the_prompt():
    """What a caller sent stays out of messages, which end in logs."""
    secret = "my-secret-words"
    for fields in (
        {"messages": secret},
        {"messages": [secret]},
        {"messages": [{"role": "user", "content": {secret: 1}}]},
    ):
        assert secret not in refusal_of(Endpoint.CHAT, fields).json().decode()
    with pytest.raises(ApiError) as caught:
        parse_call(Endpoint.CHAT, b'{"messages": "my-secret-words')
    assert secret not in caught.value.message
