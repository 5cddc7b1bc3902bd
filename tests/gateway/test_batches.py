"""Limits know of every prompt and every answer of a request, whatever its first prompt looks like."""

from __future__ import annotations

import json

import pytest

from gateway.batches import MOST_ANSWERS, about_tokens, answers_to_each, most_tokens, other_prompts
from gateway.wire import Call, Endpoint, parse_call
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import scripted_worker


def build_call(endpoint: Endpoint = Endpoint.COMPLETIONS, **fields) -> Call:
    return parse_call(endpoint, json.dumps({"model": "m", **fields}).encode())


def test_the_prompts_behind_the_first():
    """Texts or token ids; of a request with one prompt there are none."""
    assert other_prompts(build_call(prompt=["a", "bc", "d"])) == ["bc", "d"]
    assert other_prompts(build_call(Endpoint.EMBEDDINGS, input=[[1], [2, 3]])) == [[2, 3]]
    assert other_prompts(build_call(prompt="a")) == other_prompts(build_call(prompt=[1, 2])) == []


def test_sizes_of_prompts():
    """Token ids are counted; of a text the bytes say how many it has at most, and about how many it has."""
    assert (most_tokens([1, 2, 3]), about_tokens([1, 2, 3])) == (3, 3)
    assert most_tokens("é" * 100) == 200
    assert 40 <= about_tokens("é" * 100) <= 70


@pytest.mark.parametrize(
    ("fields", "answers"),
    [({}, 1), ({"n": 5}, 5), ({"n": 2, "best_of": 7}, 7), ({"n": 10**15}, MOST_ANSWERS), ({"n": -3}, 1),
     ({"n": None, "best_of": "many"}, 1), ({"n": "7"}, 7), ({"n": 7.0, "best_of": "1e9"}, 7), ({"n": True}, 1),
     ({"n": "1_000"}, 1000), ({"n": 0.5, "best_of": [9]}, 1), ({"n": "9" * 5000}, 1)],
)  # fmt: skip
def test_how_many_answers_are_made(fields, answers):
    """What no worker would take is for the worker to refuse; it moves no account. vLLM takes a number in quotes."""
    assert answers_to_each(build_call(prompt="a", **fields)) == answers


@pytest.mark.parametrize("endpoint", [Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS])
async def test_the_longest_prompt_holds_for_every_prompt_of_a_batch(endpoint):
    """A short first one opens no door."""
    field = "input" if endpoint is Endpoint.EMBEDDINGS else "prompt"
    async with scripted_worker() as worker, running_gateway(worker) as running:
        for batch in (["hi", "much too long " * 40], [[1], [7] * 21]):
            body = json.dumps({"model": "m", field: batch}).encode()
            answer = await running.ask(key="brief-key", path=endpoint.value, body=body)
            assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
        assert worker.exchanges == []
        body = json.dumps({"model": "m", field: ["hi", "short"]}).encode()
        await running.ask(key="brief-key", path=endpoint.value, body=body)
        assert len(worker.exchanges) == 1
