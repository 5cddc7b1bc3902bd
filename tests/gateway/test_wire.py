"""What is read of a request, what is refused, and what the worker gets."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.wire import MAX_DEPTH, Call, Endpoint, Usage, forward_body, parse_call, read_usage
from tests.gateway.builders import FIXTURES

CHAT, COMPLETIONS = Endpoint.CHAT, Endpoint.COMPLETIONS

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def build_body(**fields: Any) -> bytes:
    """A chat request; fields replace or add to its own."""
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()


def build_completion(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "prompt": "hi", **fields}).encode()


def chat(**fields: Any) -> Call:
    return parse_call(CHAT, build_body(**fields))


def refused(endpoint: Endpoint, body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_call(endpoint, body)
    return caught.value


def test_the_fields_a_call_is_made_of_are_read() -> None:
    """One plain request."""
    call = chat(stream=True, stream_options={"include_usage": True}, max_tokens=7, user="u", cache_salt="s")
    assert (call.model, call.stream, call.include_usage, call.max_tokens) == ("m", True, True, 7)
    assert (call.user, call.cache_salt, call.batch) == ("u", "s", False)
    assert call.source.messages == [{"role": "user", "content": "hi"}]


def test_the_larger_of_two_output_bounds_counts() -> None:
    """vLLM goes by `max_completion_tokens`, SGLang by `max_tokens`: neither may say more than is known here."""
    assert chat(max_tokens=9, max_completion_tokens=3).max_tokens == 9
    assert chat(max_tokens=3, max_completion_tokens=9).max_tokens == 9
    assert chat(max_tokens=9, max_completion_tokens=None).max_tokens == 9
    assert chat(max_completion_tokens=0).max_tokens is None


def test_a_prompt_cache_key_goes_before_a_session_id() -> None:
    """Case D-14: a documented order."""
    assert chat(prompt_cache_key="k", session_id="s").session == "k"
    assert chat(session_id="s").session == "s"
    assert refused(CHAT, build_body(session_id="a\r\nx-evil: 1")).param == "session_id"


def test_template_arguments_and_documents_reach_the_template() -> None:
    """They change the rendered prompt, so they must change its hash."""
    call = chat(chat_template_kwargs={"enable_thinking": False}, documents=[{"text": "d"}], add_generation_prompt=False)
    assert call.source.template_arguments == {"enable_thinking": False, "documents": [{"text": "d"}]}
    assert call.source.add_generation_prompt is False


@pytest.mark.parametrize(
    ("prompt", "source", "batch"),
    [
        ("", "", False),
        ("text", "text", False),
        ([1, 2, 3], [1, 2, 3], False),
        (["a", "b"], "a", True),
        (["a"], "a", False),
        ([[1, 2], [3]], [1, 2], True),
    ],
)
def test_every_shape_of_a_completion_prompt_is_read(prompt: Any, source: Any, batch: bool) -> None:
    """Case D-10: a batch is placed by its first item."""
    call = parse_call(COMPLETIONS, build_completion(prompt=prompt))
    assert (call.source.prompt, call.batch) == (source, batch)


@pytest.mark.parametrize(
    "prompt", [None, [], {}, 5, True, [True], [1, "a"], ["a", [1]], [[]], [[1.5]], [-1], [2**32], [[1, None]], [None]]
)
def test_a_prompt_that_is_none_is_refused_by_name(prompt: Any) -> None:
    """Case D-10: 400, never 500."""
    assert refused(COMPLETIONS, build_completion(prompt=prompt)).param == "prompt"


def test_a_missing_prompt_is_refused() -> None:
    """There is nothing to place."""
    assert refused(COMPLETIONS, b'{"model": "m"}').param == "prompt"


@pytest.mark.parametrize(
    "content", ["text", None, [], ["part"], [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]]
)
def test_every_shape_of_message_content_is_read(content: Any) -> None:
    """Case A-26: parts arrays are as good as strings; null stands beside tool calls."""
    call = chat(messages=[{"role": "assistant", "content": content, "tool_calls": []}])
    assert call.source.messages is not None
    assert call.source.messages[0]["content"] == content


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"",
        b'{"messages": null, "model": "m"}',
        b'{"messages": [1], "model": "m"}',
        b'{"messages": [], "model": "m"}',
        b'{"messages": [{"role": 1}], "model": "m"}',
        b'{"messages": [{"role": "user", "content": 5}], "model": "m"}',
        b'{"messages": [{"role": "user", "content": [5]}], "model": "m"}',
        b'{"messages": [{"role": "user", "content": "\xff"}], "model": "m"}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "model": "m"}',
        b'{"messages": [{"role": "user", "content": "x"}], "model": "m", "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "x"}], "model": "m", "temperature": 1e400}',
        b'{"messages": [{"role": "user", "content": "x"}], "model": "m", "x": "\xed\xa0\x80"}',
        b'{"messages": [{"role": "user", "content": "x"}], "model": "m", "seed": ' + b"9" * 5000 + b"}",
        b'{"messages": [{"role": "user", "content": "x"}], "model": "m"} trailing',
        b'\xef\xbb\xbf{"messages": [{"role": "user", "content": "x"}], "model": "m"}',
        '{"messages": [{"role": "user", "content": "x"}], "model": "m"}'.encode("utf-16"),
        b'{"messages": ' + b"[" * 5_000 + b"]" * 5_000 + b', "model": "m"}',
        b'{"messages": ' + b"[" * 200_000,
        b'{"messages": [{"role": "user", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "model": ""}',
        b'{"messages": [{"role": "user", "content": "x"}], "model": 5}',
    ],
)
def test_what_is_no_request_is_refused_and_never_a_crash(body: bytes) -> None:
    """Case D-15 and row E8."""
    error = refused(CHAT, body)
    assert error.status == 400
    assert json.loads(error.openai_body())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", "yes"),
        ("stream", 1),
        ("stream_options", []),
        ("stream_options", {"include_usage": 1}),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("max_tokens", 1.5),
        ("cache_salt", 5),
        ("tools", {}),
        ("tools", [1]),
        ("user", []),
        ("chat_template_kwargs", "x"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(name: str, value: Any) -> None:
    """The caller is told which field."""
    assert refused(CHAT, build_body(**{name: value})).param in (name, "include_usage")


def test_null_means_not_given() -> None:
    """Clients send null for what they do not set."""
    call = chat(stream=None, stream_options=None, max_tokens=None, cache_salt=None, tools=None, user=None)
    assert (call.stream, call.max_tokens, call.cache_salt, call.source.tools) == (False, None, None, None)


def test_nesting_is_allowed_to_its_limit_and_no_further() -> None:
    """Row E8: the limit is exact."""

    def nested(levels: int) -> Any:
        return [] if levels == 1 else [nested(levels - 1)]

    chat(x=nested(MAX_DEPTH - 1))
    assert "64" in refused(CHAT, build_body(x=nested(MAX_DEPTH))).message


@pytest.mark.parametrize("key", [b'"cache_salt"', b'"cache\\u005fsalt"', b'"\\u0063ache_salt"'])
def test_a_second_salt_is_refused_in_every_spelling(key: bytes) -> None:
    """Rules of isolation, 3: no parser downstream may read another value than we did."""
    body = build_body(cache_salt="a")[:-1] + b", " + key + b': "b"}'
    assert refused(CHAT, body).param == "cache_salt"


def test_a_single_key_in_an_escaped_spelling_is_that_key() -> None:
    """JSON has many spellings of one name."""
    call = parse_call(CHAT, build_body()[:-1] + b', "cache\\u005fsalt": "b"}')
    assert call.cache_salt == "b"
    assert json.loads(forward_body(call, salt="ours", ask_usage=False))["cache_salt"] == "ours"
    assert b"cache\\u005fsalt" not in forward_body(call, salt=None, ask_usage=False)


def test_an_error_never_quotes_the_request() -> None:
    """Row G6."""
    for body in (b'{"messages": "CANARY", "model": "m"}', b'{"CANARY": 1', build_body(user=["CANARY"])):
        assert "CANARY" not in refused(CHAT, body).message


def test_nothing_to_add_means_the_very_same_bytes() -> None:
    """White space, order, escapes and all."""
    body = b' {"seed" : 1.50, "model":"m", "messages":[ {"role":"user","content":"\\u00e9\\/"} ], "cache_salt":"s"}\n'
    call = parse_call(CHAT, body)
    assert forward_body(call, salt="s", ask_usage=False) is call.body
    assert call.body == body


def test_adding_fields_leaves_every_other_value_byte_exact() -> None:
    """Case D-01: unknown fields, 64-bit seeds and odd spellings survive."""
    odd = b'"x_new" : {"a":[1,  1.50, 1e3, "\\u00e9\\/"]}, "seed":18446744073709551615, "min_p": 0.10'
    body = b'{"model":"m","messages":[{"role":"user","content":"\\u00e9"}],"stream":true,' + odd + b"}"
    forwarded = forward_body(parse_call(CHAT, body), salt="s", ask_usage=True)
    for kept in (b'{"a":[1,  1.50, 1e3, "\\u00e9\\/"]}', b"18446744073709551615", b"0.10", b'"\\u00e9"'):
        assert kept in forwarded
    added = json.loads(forwarded)
    assert (added.pop("cache_salt"), added.pop("stream_options")) == ("s", {"include_usage": True})
    assert added == json.loads(body)


def test_asking_for_usage_keeps_the_other_stream_options() -> None:
    """Only `include_usage` is ours."""
    call = chat(stream=True, stream_options={"continuous_usage_stats": True})
    forwarded = json.loads(forward_body(call, salt=None, ask_usage=True))
    assert forwarded["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_a_salt_replaces_the_callers_own() -> None:
    """Rules of isolation, 3."""
    assert json.loads(forward_body(chat(cache_salt="mine"), salt="ours", ask_usage=False))["cache_salt"] == "ours"
    assert "cache_salt" not in json.loads(forward_body(chat(cache_salt="mine"), salt=None, ask_usage=False))


def nobodys(name: str) -> str:
    """A name that the gateway does not read: Hypothesis draws from the words that it finds in the code, too."""
    return f"x_{name}" if re.fullmatch("[a-z0-9_]+", name) else name


NAMES = st.text(min_size=1, max_size=10).map(nobodys)


@given(extra=st.dictionaries(NAMES, json_values, max_size=6), salted=st.booleans())
def test_whatever_else_a_request_holds_arrives_unchanged(extra: dict[str, Any], salted: bool) -> None:
    """Row E9, over arbitrary JSON under arbitrary names."""
    body = json.dumps({**extra, "model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    forwarded = json.loads(forward_body(parse_call(CHAT, body), salt="s" if salted else None, ask_usage=salted))
    if salted:
        del forwarded["cache_salt"], forwarded["stream_options"]
    assert forwarded == json.loads(body)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_crash_the_parser(body: bytes) -> None:
    """Either a call or a 400."""
    for endpoint in Endpoint:
        with pytest.raises(InvalidRequest):
            parse_call(endpoint, body)


def test_usage_is_read_where_there_is_some() -> None:
    """Cached tokens are None where the worker says nothing about them, which is not zero."""
    plain = b'{"id": "x", "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}'
    detailed = b'{"usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}}'
    nulled = b'{"usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": null}}'
    assert read_usage(plain) == Usage(5, 2, None)
    assert read_usage(detailed) == Usage(5, 2, 4)
    assert read_usage(nulled) == Usage(5, 2, None)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"usage": null}', b'{"usage": 5}', b"<html>", b"[" * 100_000])
def test_no_usage_is_none(answer: bytes) -> None:
    """Whatever a worker answers."""
    assert read_usage(answer) is None


def test_the_usage_of_real_workers_is_read() -> None:
    """Recorded answers of vLLM and llama.cpp."""
    found = 0
    for engine in ("vllm-0.32", "llama.cpp"):
        for exchange in json.loads((FIXTURES / engine / "exchanges.json").read_text()):
            if exchange["status"] == 200 and exchange["path"] in ("/v1/chat/completions", "/v1/completions"):
                usage = read_usage(exchange["body"].encode())
                stream = exchange["request"].get("stream")
                assert stream or (usage is not None and usage.prompt_tokens > 0)
                found += usage is not None
    assert found >= 4
