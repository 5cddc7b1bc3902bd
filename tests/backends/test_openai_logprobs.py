"""Logprobs in JSON: three shapes, no infinities, tokens by text or by id."""

from __future__ import annotations

from backends.openai_logprobs import TokenNames, chat_logprobs, completion_logprobs, prompt_logprobs
from backends.types import SampledToken

WORDS = {1: "Red", 2: ", ", 3: "é", 4: "Red"}
NAMES = TokenNames(lambda ids: WORDS[ids[0]])


def test_chat_logprobs_name_tokens_bytes_and_alternatives():
    """OpenAI's shape; no infinity, which JSON has not."""
    token = SampledToken(3, -0.5, ((3, -0.5), (1, float("-inf"))))
    assert chat_logprobs([token], NAMES) == {
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
    assert completion_logprobs(tokens, NAMES, 10) == {
        "text_offset": [10, 13],
        "token_logprobs": [-0.1, -0.3],
        "tokens": ["Red", ", "],
        "top_logprobs": [{"Red": -0.1, ", ": -3.0}, {", ": -0.3}],
    }


def test_an_echoed_prompt_starts_with_a_token_without_logprob():
    """Nothing came before it."""
    assert completion_logprobs([SampledToken(2, -0.3)], NAMES, 0, echoed=1) == {
        "text_offset": [0, 3],
        "token_logprobs": [None, -0.3],
        "tokens": ["Red", ", "],
        "top_logprobs": [None, {", ": -0.3}],
    }


def test_prompt_logprobs_are_objects_by_token_id():
    """The token itself with its rank, the best ones with theirs, each once; null for the first token."""
    scored = SampledToken(2, -3.0, ((1, -0.1), (3, float("-inf"))), 7)
    best = SampledToken(1, -0.1, ((1, -0.1),), 1)
    assert prompt_logprobs([scored, best], NAMES) == [
        None,
        {
            "2": {"logprob": -3.0, "rank": 7, "decoded_token": ", "},
            "1": {"logprob": -0.1, "rank": 1, "decoded_token": "Red"},
            "3": {"logprob": -9999.0, "rank": 2, "decoded_token": "é"},
        },
        {"1": {"logprob": -0.1, "rank": 1, "decoded_token": "Red"}},
    ]


def test_tokens_are_named_by_id_when_asked_for():
    """vLLM's return_tokens_as_token_ids: text that JSON could not carry is told apart so."""
    by_id = TokenNames(NAMES.decode, by_id=True)
    token = SampledToken(1, -0.1, ((4, -0.2),))
    assert completion_logprobs([token], by_id, 0)["tokens"] == ["token_id:1"]
    assert completion_logprobs([token], by_id, 0)["top_logprobs"] == [{"token_id:1": -0.1, "token_id:4": -0.2}]
    assert chat_logprobs([token], by_id)["content"][0]["token"] == "token_id:1"
