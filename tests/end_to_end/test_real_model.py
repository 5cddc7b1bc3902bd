"""SmolLM2's real weights behind the gateway: right words, real cached tokens, real isolation."""

from __future__ import annotations

import json

import pytest

from router.tokenise import find_smollm2
from tests.end_to_end.fleet import ask, build_config, cached, chat, client
from tests.end_to_end.processes import gateway, worker

QUESTION = "What is the capital of France?"
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Two real workers, tokenised by the model's own tokenizer."""
    directory = tmp_path_factory.mktemp("real")
    flags = ["--num-gpu-blocks-override", "512", "--max-model-len", "2048", "--threads", "1"]
    with worker(directory, *flags) as a, worker(directory, *flags) as b:
        config = build_config(directory, {"a": a.url, "b": b.url}, tokenizer=str(find_smollm2()))
        with gateway(directory, config) as process:
            yield process


def test_the_capital_of_france_is_paris_and_the_second_time_it_is_cached(running):
    """The same prompt again reports cached tokens; with another tenant's key it reports none, and the same words."""
    messages = chat(SYSTEM, QUESTION)
    first, home = ask(client(running.url), messages, max_tokens=16)
    again, worker_again = ask(client(running.url), messages, max_tokens=16)
    other, _ = ask(client(running.url, "beta"), messages, max_tokens=16)
    assert "Paris" in first.choices[0].message.content
    assert again.choices[0].message.content == first.choices[0].message.content
    assert worker_again == home
    assert (cached(first), cached(other)) == (0, 0)
    assert cached(again) > 0
    assert "Paris" in other.choices[0].message.content


def test_the_gateway_counts_the_tokens_that_the_worker_counts(running):
    """Template and tokenizer agree: the prediction can speak of the worker's own blocks."""
    messages = chat("Be brief. " * 40, "Name a colour.")
    answer, _ = ask(client(running.url), messages)
    with client(running.url)._client as http:
        body = {"model": "smollm2", "messages": messages}
        said = json.loads(http.post(f"{running.admin}/explain?tenant=alpha", json=body).text)
    assert said["tokens"] == answer.usage.prompt_tokens
