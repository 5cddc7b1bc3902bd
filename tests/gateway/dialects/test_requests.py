"""The same words by chat, responses and messages make the same prompt; what cannot be is refused by name."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.wire import Call, Endpoint, forward_body, parse_call
from router.core import PromptSource

SYSTEM, USER = "Be brief. " * 40, "Who is there?"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}}


def ask(endpoint: Endpoint, **fields: Any) -> Call:
    return parse_call(endpoint, json.dumps({"model": "m", **fields}).encode())


def source(endpoint: Endpoint, **fields: Any) -> PromptSource:
    return ask(endpoint, **fields).source


def chat(*messages: dict[str, Any], **fields: Any) -> PromptSource:
    return source(Endpoint.CHAT, messages=list(messages), **fields)


def refused(endpoint: Endpoint, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        ask(endpoint, **fields)
    assert caught.value.status == 400
    return caught.value.param


PLAIN = ({"role": "system", "content": SYSTEM}, {"role": "user", "content": USER})


@pytest.mark.parametrize(
    ("endpoint", "fields"),
    [
        (Endpoint.RESPONSES, {"instructions": SYSTEM, "input": USER}),
        (Endpoint.RESPONSES, {"instructions": SYSTEM, "input": [{"role": "user", "content": USER}]}),
        (Endpoint.RESPONSES, {"input": [{"type": "message", **PLAIN[0]}, PLAIN[1]]}),
        (Endpoint.MESSAGES, {"system": SYSTEM, "messages": [PLAIN[1]]}),
        (Endpoint.MESSAGES, {"system": [{"type": "text", "text": SYSTEM}], "messages": [PLAIN[1]]}),
        (Endpoint.MESSAGES, {"messages": list(PLAIN)}),
        (
            Endpoint.MESSAGES,
            {
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: 4f"},
                    {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}},
                ],
                "messages": [{"role": "user", "content": [{"type": "text", "text": USER, "cache_control": {}}]}],
            },
        ),
        (Endpoint.EMBEDDINGS, {"messages": list(PLAIN)}),
    ],
)
def test_the_same_words_make_the_same_messages(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    """Case D-05: so that they have one home and one cache."""
    drop = [{k: v for k, v in message.items() if k != "type"} for message in source(endpoint, **fields).messages or ()]
    assert drop == list(chat(*PLAIN).messages or ())


@pytest.mark.parametrize(
    ("endpoint", "tool", "text"),
    [
        (
            Endpoint.RESPONSES,
            {"type": "function", "name": "weather", "description": "Tells it.", "parameters": SCHEMA},
            {"input": USER},
        ),
        (
            Endpoint.MESSAGES,
            {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA, "cache_control": {"type": "x"}},
            {"messages": [PLAIN[1]]},
        ),
    ],
)
def test_tools_are_mapped_to_chats_shape(endpoint: Endpoint, tool: dict[str, Any], text: dict[str, Any]) -> None:
    """They stand at the beginning of the prompt: they must not differ by spelling."""
    assert source(endpoint, tools=[tool], **text).tools == chat(PLAIN[1], tools=[TOOL]).tools


def test_calls_and_their_results_are_mapped_to_chats_shape() -> None:
    """A turn with a tool in it, three times."""
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    expected = [
        PLAIN[1],
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "user", "content": "And now?"},
    ]
    by_messages = source(
        Endpoint.MESSAGES,
        messages=[
            PLAIN[1],
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "rain"}]},
                    {"type": "text", "text": "And now?"},
                ],
            },
        ],
    )
    by_responses = source(
        Endpoint.RESPONSES,
        input=[
            PLAIN[1],
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"role": "user", "content": "And now?"},
        ],
    )
    assert by_messages.messages == expected
    assert by_responses.messages == expected


def test_images_and_thinking_reach_the_prompt() -> None:
    """Images tell prompts apart; thinking goes where vLLM puts it."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    far = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    messages = [
        {"role": "user", "content": [image, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "A cat."}]},
        {"role": "ctx", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [far]}]},
    ]
    got = list(source(Endpoint.MESSAGES, messages=messages).messages or ())
    assert got[0]["content"][0] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert got[1] == {"role": "assistant", "reasoning": "hm", "content": "A cat."}
    assert got[2] == {"role": "tool", "tool_call_id": "c", "content": ""}
    assert got[3]["content"][0]["image_url"]["url"] == "https://x/y.png"


def test_reasoning_and_several_calls_join_the_assistants_message() -> None:
    """As vLLM joins them."""
    items = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "item_reference", "id": "rs_1"},
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Really."},
    ]
    first, second = source(Endpoint.RESPONSES, input=items).messages or ()
    assert (first["reasoning"], first["content"], len(first["tool_calls"])) == ("hm", "Done.", 2)
    assert second["content"] == "Really."


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (Endpoint.RESPONSES, {}, "input"),
        (Endpoint.RESPONSES, {"input": []}, "input"),
        (Endpoint.RESPONSES, {"input": [5]}, "input[0]"),
        (Endpoint.RESPONSES, {"input": [{"type": "message"}]}, "input[0]"),
        (Endpoint.RESPONSES, {"input": "x", "instructions": 5}, "instructions"),
        (Endpoint.RESPONSES, {"input": "x", "tools": ["f"]}, "tools"),
        (Endpoint.RESPONSES, {"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        (Endpoint.RESPONSES, {"input": "x", "background": True}, "background"),
        (Endpoint.RESPONSES, {"input": "x", "max_output_tokens": "9"}, "max_output_tokens"),
        (Endpoint.RESPONSES, {"input": [{"type": "function_call_output", "output": 5}]}, "input[0].output"),
        (Endpoint.MESSAGES, {}, "messages"),
        (Endpoint.MESSAGES, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (Endpoint.MESSAGES, {"messages": [PLAIN[1]], "system": 5}, "system"),
        (Endpoint.MESSAGES, {"messages": [PLAIN[1]], "metadata": {"user_id": 5}}, "metadata.user_id"),
        (Endpoint.EMBEDDINGS, {}, "input"),
        (Endpoint.EMBEDDINGS, {"input": [1.5]}, "input"),
        (Endpoint.TOKENIZE, {}, "prompt"),
        (Endpoint.TOKENIZE, {"messages": []}, "messages"),
        (Endpoint.DETOKENIZE, {"tokens": ["a"]}, "tokens"),
        (Endpoint.COUNT_TOKENS, {"messages": None}, "messages"),
        (Endpoint.MESSAGES, {"messages": [PLAIN[1]], "model": ""}, "model"),
    ],
)
def test_what_cannot_be_is_refused_by_name(endpoint: Endpoint, fields: dict[str, Any], param: str) -> None:
    """400 with the place, never a crash."""
    assert refused(endpoint, **fields) == param


def test_limits_and_users_are_read_where_each_api_has_them() -> None:
    """For the reservation, and for isolation per user."""
    messages = ask(Endpoint.MESSAGES, messages=[PLAIN[1]], max_tokens=7, metadata={"user_id": "u"}, stream=True)
    responses = ask(Endpoint.RESPONSES, input="x", max_output_tokens=8, user="v", stream=True)
    assert (messages.max_tokens, messages.user, messages.hides_usage) == (7, "u", False)
    assert (responses.max_tokens, responses.user, responses.hides_usage) == (8, "v", False)
    assert responses.text_field == "input"


@pytest.mark.parametrize("endpoint", [Endpoint.RESPONSES, Endpoint.MESSAGES, Endpoint.EMBEDDINGS])
def test_every_endpoint_with_a_cache_behind_it_is_salted_and_nothing_else_is_changed(endpoint: Endpoint) -> None:
    """Case D-03: the caller's own salt never passes; no `stream_options` where the API knows none."""
    body = b'{"model":"m","input":"x","messages":[{"role":"user","content":"x"}],"n":1.50,"stream":true}'
    sent = forward_body(parse_call(endpoint, body), salt="ours", ask_usage=True)
    assert sent == body[:-1] + b',"cache_salt":"ours"}'


@pytest.mark.parametrize("endpoint", [Endpoint.TOKENIZE, Endpoint.COUNT_TOKENS])
def test_what_touches_no_cache_goes_as_it_came_and_is_placed_by_nothing(endpoint: Endpoint) -> None:
    """Nobody is believed to hold what was only counted."""
    body = b'{"model":"m", "messages":[{"role":"user","content":"x"}]}'
    call = parse_call(endpoint, body)
    assert forward_body(call, salt="ours", ask_usage=False, partition="p") is body
    assert (call.source.messages, call.source.prompt, call.caches) == (None, (), False)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("type", "role", "content", "text", "input", "source", "output", "tools", "id", "name")),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)


@given(
    st.sampled_from(Endpoint),
    st.dictionaries(
        st.sampled_from(("messages", "input", "system", "instructions", "tools", "prompt", "tokens", "metadata")),
        json_values | st.lists(json_values, min_size=1, max_size=3),
        max_size=4,
    ),
)
def test_no_json_value_anywhere_crashes_a_reader(endpoint: Endpoint, fields: dict[str, Any]) -> None:
    """Case D-15, for every endpoint."""
    with contextlib.suppress(InvalidRequest):
        ask(endpoint, **fields)
