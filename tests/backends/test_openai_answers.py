"""Answers and chunks, key for key as vLLM 0.32 sent them."""

from __future__ import annotations

import json

import pytest

from backends.openai_answers import AnswerStyle, ChoiceText, Usage, error_event
from backends.openai_wire import Endpoint
from backends.types import Delta, SampledToken
from tests.backends.server_builders import events, recorded, shape

WORDS = {1: "Red", 2: ", ", 3: "é", 4: "Red"}


def build_style(endpoint: Endpoint = Endpoint.CHAT, **changes) -> AnswerStyle:
    settings = {"answer_id": f"{endpoint.value}-1", "created": 1, "model": "smollm2", "fingerprint": "f"}
    return AnswerStyle(endpoint=endpoint, decode=lambda ids: WORDS[ids[0]], **{**settings, **changes})


def build_delta(text: str = "Red", finish: str | None = None, **changes) -> Delta:
    fields = {"token_ids": (1,), "prompt_tokens": 10, "cached_tokens": 0, "completion_tokens": 1}
    return Delta(request_id="a", text=text, finish_reason=finish, **{**fields, **changes})


def build_usage(**counts) -> Usage:
    usage = Usage(details=True)
    usage.add_prompt(791, 768, 32)
    usage.completion_tokens = 8
    return usage


def test_a_chat_answer_has_the_recorded_keys_in_the_recorded_order():
    """From id to metrics."""
    body = build_style().whole([ChoiceText("Paris.", "stop")], build_usage())
    assert shape(json.loads(body)) == shape(json.loads(recorded("chat_again_cached")["body"]))


def test_a_completion_has_the_recorded_keys_in_the_recorded_order():
    """A prompt shorter than a block created nothing, which is null."""
    usage = Usage(details=True)
    usage.add_prompt(8, 0, 32)
    body = build_style(Endpoint.COMPLETIONS).whole([ChoiceText(" the day", "length")], usage)
    assert shape(json.loads(body)) == shape(json.loads(recorded("completions_token_ids")["body"]))


def test_a_chat_stream_has_the_recorded_events():
    """Role, text, end, usage: each with its own keys."""
    style = build_style()
    chunks = [
        style.role_chunk(0, None),
        style.chunk(0, build_delta(), 0, usage=None, last=False),
        style.chunk(0, build_delta(finish="length"), 0, usage=None, last=False),
        style.usage_chunk(build_usage()),
    ]
    expected = events(recorded("chat_stream_usage")["body"])
    assert [shape(event) for event in events(b"".join(chunks))] == [
        shape(expected[position]) for position in (0, 1, -3, -2)
    ]


def test_a_completion_stream_has_the_recorded_events():
    """The last one carries the fingerprint."""
    style = build_style(Endpoint.COMPLETIONS)
    chunks = [
        style.chunk(0, build_delta(), 0, usage=None, last=False),
        style.chunk(0, build_delta(finish="length"), 0, usage=None, last=True),
    ]
    expected = events(recorded("completions_stream")["body"])
    assert [shape(event) for event in events(b"".join(chunks))] == [shape(expected[0]), shape(expected[-2])]


@pytest.mark.parametrize(
    ("prompt_tokens", "cached_tokens", "block_tokens", "created"),
    [(791, 0, 32, 768), (791, 768, 32, 0), (8, 0, 32, None), (64, 32, 32, 32), (791, 0, None, None)],
)
def test_created_cache_tokens_are_the_full_blocks_that_were_not_found(
    prompt_tokens, cached_tokens, block_tokens, created
):
    """As recorded; null when there is no full block, or no cache."""
    usage = Usage(details=True)
    usage.add_prompt(prompt_tokens, cached_tokens, block_tokens)
    assert usage.whole()["prompt_tokens_details"]["created_cache_tokens"] == created


def test_without_details_nothing_is_told_about_the_cache():
    """vLLM without --enable-prompt-tokens-details: null in a body, absent in a stream."""
    usage = Usage(details=False)
    usage.add_prompt(64, 32, 32)
    assert usage.whole()["prompt_tokens_details"] is None
    assert "prompt_tokens_details" not in usage.streamed()


def test_a_batch_is_summed():
    """Two prompts, one usage."""
    usage = Usage(details=True)
    usage.add_prompt(8, 0, 32)
    usage.add_prompt(70, 32, 32)
    details = usage.whole()["prompt_tokens_details"]
    assert (usage.prompt_tokens, details["cached_tokens"], details["created_cache_tokens"]) == (78, 32, 32)


def test_chat_logprobs_name_tokens_bytes_and_alternatives():
    """OpenAI's shape; no infinity, which JSON has not."""
    token = SampledToken(3, -0.5, ((3, -0.5), (1, float("-inf"))))
    choice = ChoiceText("é", "stop", logprobs=[token])
    answer = json.loads(build_style(logprobs=True).whole([choice], build_usage()))
    assert answer["choices"][0]["logprobs"] == {
        "content": [
            {
                "token": "é",
                "logprob": -0.5,
                "bytes": [195, 169],
                "top_logprobs": [
                    {"token": "é", "logprob": -0.5, "bytes": [195, 169]},
                    {"token": "Red", "logprob": -9999.0, "bytes": [82, 101, 100]},
                ],
            }
        ]
    }


def test_completion_logprobs_are_lists_with_offsets():
    """The older shape; offsets go on over the chunks of a stream."""
    tokens = (SampledToken(1, -0.1, ((1, -0.1), (4, -0.2), (2, -3.0))), SampledToken(2, -0.3))
    delta = build_delta("Red, ", logprobs=tokens)
    event = build_style(Endpoint.COMPLETIONS, logprobs=True).chunk(0, delta, 10, usage=None, last=False)
    assert events(event)[0]["choices"][0]["logprobs"] == {
        "text_offset": [10, 13],
        "token_logprobs": [-0.1, -0.3],
        "tokens": ["Red", ", "],
        "top_logprobs": [{"Red": -0.1, ", ": -3.0}, {", ": -0.3}],
    }


def test_a_stop_string_is_told_as_the_reason():
    """vLLM's own field beside finish_reason."""
    delta = build_delta("", finish="stop", stop_reason="END")
    choice = events(build_style().chunk(0, delta, 0, usage=None, last=True))[0]["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")


def test_text_of_any_script_stays_one_line():
    """Line ends and separators inside JSON never break an event."""
    text = 'a\nb\r\n\u2028 "quoted" 日本 \U0001f642'
    event = build_style().chunk(0, build_delta(text), 0, usage=None, last=False)
    assert event.count(b"\n") == 2
    assert events(event)[0]["choices"][0]["delta"]["content"] == text


def test_an_error_in_a_stream_is_followed_by_the_end():
    """As vLLM: an error object as data, then [DONE]."""
    assert events(error_event({"error": {"message": "m"}})) == [{"error": {"message": "m"}}, "[DONE]"]
