"""Answers and chunks, key for key as vLLM 0.32 sent them."""

from __future__ import annotations

import json

from backends.openai_answers import AnswerStyle, ChoiceText, broken_off, error_event
from backends.openai_logprobs import TokenNames
from backends.openai_usage import Usage
from backends.openai_wire import Endpoint
from backends.types import Delta, SampledToken
from tests.backends.server_builders import events, recorded, shape

WORDS = {1: "Red", 2: ", ", 3: "é", 4: "Red"}


def build_style(endpoint: Endpoint = Endpoint.CHAT, **changes) -> AnswerStyle:
    settings = {"answer_id": f"{endpoint.value}-1", "created": 1, "model": "smollm2", "fingerprint": "f"}
    names = TokenNames(lambda ids: "".join(WORDS[token_id] for token_id in ids))
    return AnswerStyle(endpoint=endpoint, names=names, **{**settings, **changes})


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
        style.role_chunk(0, ChoiceText(), None),
        style.chunk(0, build_delta(), ChoiceText(), usage=None, last=False),
        style.chunk(0, build_delta(finish="length"), ChoiceText(), usage=None, last=False),
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
        style.chunk(0, build_delta(), ChoiceText(), usage=None, last=False),
        style.chunk(0, build_delta(finish="length"), ChoiceText(), usage=None, last=True),
    ]
    expected = events(recorded("completions_stream")["body"])
    assert [shape(event) for event in events(b"".join(chunks))] == [shape(expected[0]), shape(expected[-2])]


def test_a_stop_string_is_told_as_the_reason():
    """vLLM's own field beside finish_reason."""
    delta = build_delta("", finish="stop", stop_reason="END")
    choice = events(build_style().chunk(0, delta, ChoiceText(), usage=None, last=True))[0]["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "END")


def test_text_of_any_script_stays_one_line():
    """Line ends and separators inside JSON never break an event."""
    text = 'a\nb\r\n\u2028 "quoted" 日本 \U0001f642'
    event = build_style().chunk(0, build_delta(text), ChoiceText(), usage=None, last=False)
    assert event.count(b"\n") == 2
    assert events(event)[0]["choices"][0]["delta"]["content"] == text


def test_an_error_in_a_stream_is_followed_by_the_end():
    """As vLLM: an error object as data, then [DONE]."""
    assert events(error_event({"error": {"message": "m"}})) == [{"error": {"message": "m"}}, "[DONE]"]


def test_a_fault_ends_a_stream_without_the_end_mark():
    """What came before it is not all, and nothing may say that it is."""
    assert events(broken_off({"error": {"message": "m"}})) == [{"error": {"message": "m"}}]


def test_token_ids_are_told_to_those_who_ask():
    """Of the prompt once, of the answer with its text; null for everybody else."""
    choice = ChoiceText("Red", "stop", prompt_ids=[1, 2], token_ids=[1])
    chat = json.loads(build_style(token_ids=True).whole([choice], build_usage()))
    assert (chat["prompt_token_ids"], chat["choices"][0]["token_ids"]) == ([1, 2], [1])
    style = build_style(Endpoint.COMPLETIONS, token_ids=True)
    (completion,) = json.loads(style.whole([choice], build_usage()))["choices"]
    assert (completion["prompt_token_ids"], completion["token_ids"]) == ([1, 2], [1])
    for endpoint in Endpoint:
        assert "[1" not in build_style(endpoint).whole([choice], build_usage()).decode()


def test_a_stream_tells_the_prompts_ids_once_and_each_chunks_own():
    """With the role in a chat, with the first text in a completion."""
    chat, completion = build_style(token_ids=True), build_style(Endpoint.COMPLETIONS, token_ids=True)
    choice = ChoiceText(prompt_ids=[1, 2])
    assert events(chat.role_chunk(0, choice, None))[0]["prompt_token_ids"] == [1, 2]
    first = events(completion.chunk(0, build_delta(), choice, usage=None, last=False))[0]["choices"][0]
    choice.extend(build_delta())
    later = events(completion.chunk(0, build_delta(), choice, usage=None, last=False))[0]["choices"][0]
    assert (first["prompt_token_ids"], later["prompt_token_ids"]) == ([1, 2], None)
    assert first["token_ids"] == later["token_ids"] == [1]


def test_the_scores_of_a_prompt_stand_beside_its_answer():
    """At the top of a chat, in every choice of a completion."""
    choice = ChoiceText("Red", "stop", prompt_ids=[1, 2], prompt_scores=(SampledToken(2, -0.5, (), 4),))
    scores = [None, {"2": {"logprob": -0.5, "rank": 4, "decoded_token": ", "}}]
    assert json.loads(build_style(scores_prompt=True).whole([choice], build_usage()))["prompt_logprobs"] == scores
    style = build_style(Endpoint.COMPLETIONS, scores_prompt=True)
    assert json.loads(style.whole([choice], build_usage()))["choices"][0]["prompt_logprobs"] == scores


def test_an_echo_begins_with_the_prompt_in_text_and_logprobs():
    """Its first token has no logprob; offsets count from its first character."""
    scored = {"logprobs": [SampledToken(3, -0.1)], "prompt_scores": (SampledToken(2, -0.5),)}
    choice = ChoiceText("é", "length", prompt_ids=[1, 2], echoed="Red, ", **scored)
    style = build_style(Endpoint.COMPLETIONS, echo=True, logprobs=True)
    (answer,) = json.loads(style.whole([choice], build_usage()))["choices"]
    assert answer["text"] == "Red, é"
    assert answer["logprobs"]["tokens"] == ["Red", ", ", "é"]
    assert answer["logprobs"]["token_logprobs"] == [None, -0.5, -0.1]
    assert answer["logprobs"]["text_offset"] == [0, 3, 5]


def test_a_growing_choice_keeps_what_a_step_brought():
    """Text, ids, logprobs, and the prompt's scores, which come once."""
    choice = ChoiceText()
    choice.extend(build_delta("a", logprobs=(SampledToken(1),), prompt_logprobs=(SampledToken(2),)))
    choice.extend(build_delta("b", finish="stop", stop_reason="b", logprobs=(SampledToken(3),)))
    assert (choice.text, choice.token_ids, choice.finish_reason, choice.stop_reason) == ("ab", [1, 1], "stop", "b")
    assert [token.token_id for token in choice.logprobs] == [1, 3]
    assert choice.prompt_scores == (SampledToken(2),)
