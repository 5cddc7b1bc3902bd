"""Requests whose parts are of kinds that no client should send: their worker judges them, and nothing of ours fails."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.model_prompts import ModelPrompts, Seeding
from gateway.rewrites.apply import rewrite_call
from gateway.rewrites.rules import parse_rewrites
from gateway.wire import Call, Endpoint, forward_body, parse_call
from router.normalise import DEFAULT, RULES, fold_rules
from router.tokenise import bytes_text
from tests.gateway.test_proxy import one_worker

BODIES = 250
"""Of each endpoint."""

ODD: tuple[Any, ...] = (
    None, 5, -1, 1.5, True, "", "\u0000", [], [5], ["x"], {}, {"a": 1}, [None], [{"type": ["t"]}],
    {"type": "text", "text": 5},
)  # fmt: skip
CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CHAT = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "t"}, PICTURE], "name": "n"},
        {"role": "assistant", "content": None, "tool_calls": CALLS, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "chat_template_kwargs": {"enable_thinking": False},
    "documents": [{"title": "x"}],
    "stream_options": {"include_usage": True},
    "vllm_xargs": {"a": 1},
    "metadata": {"a": "b"},
}
RESPONSES = {
    "instructions": "i",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": "u"}]},
        {"type": "reasoning", "summary": [{"text": "s"}], "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "o"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": "web_search"}],
}
BLOCKS = [{"type": "text", "text": "z"}, {"type": "image", "source": {"type": "url", "url": "http://x"}}]
MESSAGES = {
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": BLOCKS},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": BLOCKS}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
    "metadata": {"user_id": "u"},
}
GOOD: dict[Endpoint, dict[str, Any]] = {Endpoint.CHAT: CHAT, Endpoint.RESPONSES: RESPONSES, Endpoint.MESSAGES: MESSAGES}


def spoilt(value: Any, chance: random.Random) -> Any:
    """The value with odd ones here and there in it."""
    if chance.random() < 0.15:
        return chance.choice(ODD)
    if isinstance(value, dict):
        return {name: spoilt(each, chance) if chance.random() < 0.5 else each for name, each in value.items()}
    if isinstance(value, list):
        return [spoilt(each, chance) if chance.random() < 0.5 else each for each in value]
    return value


def readable(endpoint: Endpoint, seed: int) -> list[Call]:
    """What is not refused with 400 of some bodies with odd parts."""
    chance, calls = random.Random(seed), []
    for _ in range(BODIES):
        fields = {
            name: spoilt(each, chance) if chance.random() < 0.3 else each for name, each in GOOD[endpoint].items()
        }
        with suppress(InvalidRequest):
            calls.append(parse_call(endpoint, json.dumps({"model": "m", **fields}).encode()))
    return calls


@pytest.mark.parametrize("endpoint", GOOD)
def test_whatever_is_not_refused_has_a_prompt_to_place_by(endpoint: Endpoint) -> None:
    """With the usual folds, and with all."""
    prompts = ModelPrompts(bytes_text("a test"), 64)
    calls = readable(endpoint, 11)
    assert len(calls) > BODIES / 4
    for rules in (DEFAULT, fold_rules([rule.name for rule in RULES])):
        for call in calls:
            assert prompts.build(call.source, Seeding("salt", "m", rules)).tokens > 0


@pytest.mark.parametrize("endpoint", GOOD)
def test_whatever_is_not_refused_can_be_rewritten_and_forwarded(endpoint: Endpoint) -> None:
    """And is still one JSON object with everything in it."""
    rewrites = parse_rewrites(["tool_order", "clock_last", "line_ends"])
    for call in readable(endpoint, 12):
        rewritten, _ = rewrite_call(call, rewrites)
        sent = json.loads(forward_body(rewritten, salt="s", ask_usage=True, most_output_tokens=4))
        assert sent.keys() >= json.loads(call.body).keys()


@pytest.mark.parametrize("calls", [1.5, True, "x", {"a": 1}, [{"function": {"name": "f", "arguments": -1}}]])
async def test_calls_of_odd_kinds_are_for_the_worker_to_judge(calls: Any) -> None:
    """They were a 500 and a traceback in the log, for whoever wanted one."""
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    async with one_worker() as (running, worker):
        assert (await running.ask(messages=said)).status == 200
        assert worker.exchanges[0].asked["messages"] == said
