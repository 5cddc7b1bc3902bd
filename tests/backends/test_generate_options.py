"""What a request may ask for beyond text, over HTTP: scores, ids, echoes, ends; and its wishes for the cache."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from router.tokenise import pack
from tests.backends.server_builders import CHAT, COMPLETIONS, RunningWorker, events, running_worker

PROMPT = list(range(1, 101))


async def cached_tokens(running: RunningWorker, prompt: list[int] = PROMPT, **fields: Any) -> int:
    answer = await running.complete(prompt, max_tokens=1, **fields)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


async def test_a_prompts_scores_come_for_all_its_tokens_and_read_no_cache():
    """Trap 17: a cached block has no logits; what was computed for them is cached for others."""
    async with running_worker("--max-num-batched-tokens", "256") as running:
        await running.complete(PROMPT * 5, max_tokens=1)
        answer = await running.complete(PROMPT * 5, max_tokens=1, prompt_logprobs=1)
        scores = answer["choices"][0]["prompt_logprobs"]
        assert scores[0] is None
        assert [next(iter(score)) for score in scores[1:]] == [str(token) for token in (PROMPT * 5)[1:]]
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert await cached_tokens(running, PROMPT * 5) == 496


async def test_a_chat_tells_ids_and_scores_at_its_top():
    """vLLM's place for them."""
    async with running_worker() as running:
        answer = await running.chat(max_tokens=2, prompt_logprobs=0, return_token_ids=True)
        assert len(answer["prompt_logprobs"]) == len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
        assert len(answer["choices"][0]["token_ids"]) == 2


async def test_streamed_ids_add_up_to_those_of_the_whole_answer():
    """The prompt's with the first event."""
    async with running_worker() as running:
        whole = (await running.complete("hello", max_tokens=5, return_token_ids=True))["choices"][0]
        for path, body in (
            (COMPLETIONS, {"prompt": "hello"}),
            (CHAT, {"messages": [{"role": "user", "content": "x"}]}),
        ):
            request = {**body, "max_tokens": 5, "return_token_ids": True, "stream": True}
            async with running.client.post(path, json=request) as response:
                seen = [event for event in events(await response.read()) if event != "[DONE]"]
            ids = [token for event in seen for choice in event["choices"] for token in choice.get("token_ids") or ()]
            assert len(ids) == 5
            if path == COMPLETIONS:
                assert ids == whole["token_ids"]
                assert seen[0]["choices"][0]["prompt_token_ids"] == whole["prompt_token_ids"]
            else:
                assert seen[0]["prompt_token_ids"]


@pytest.mark.parametrize("name", ["seed", "priority", "max_tokens", "min_tokens", "top_k", "n", "logprobs"])
async def test_a_number_of_thousands_of_digits_is_a_bad_request(name: str):
    """Not a fault at the first sum that cannot be written, in a step that other requests share."""
    async with running_worker() as running:
        body = f'{{"prompt": "x", "{name}": {"9" * 4300}}}'.encode()
        async with running.client.post(
            COMPLETIONS, data=body, headers={"Content-Type": "application/json"}
        ) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] == f"body.{name}"


async def test_an_echo_repeats_the_prompt_as_it_was_given():
    """Not what the tokeniser put before it; `add_special_tokens` has it put nothing, or something before a chat."""
    async with running_worker() as running:
        prompts = running.worker.prompts
        prompts.text = replace(prompts.text, prompt_prefix=pack([257]))
        answer = await running.complete("hello", echo=True, max_tokens=0)
        assert (answer["choices"][0]["text"], answer["usage"]["prompt_tokens"]) == ("hello", 6)
        answer = await running.complete("hello", max_tokens=1, add_special_tokens=False)
        assert answer["usage"]["prompt_tokens"] == 5
        plain, more = await running.chat(max_tokens=1), await running.chat(max_tokens=1, add_special_tokens=True)
        assert more["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"] + 1


async def test_an_echo_without_an_answer_is_the_prompt_and_its_scores():
    """`max_tokens: 0`: how an evaluation reads the logprobs of a text."""
    async with running_worker() as running:
        answer = await running.complete("hello", echo=True, logprobs=1, max_tokens=0)
        (choice,) = answer["choices"]
        assert (choice["text"], choice["logprobs"]["tokens"]) == ("hello", list("hello"))
        assert answer["usage"]["completion_tokens"] == 0


async def test_an_answer_is_no_shorter_than_asked():
    """`min_tokens` goes before the model's own end."""
    async with running_worker(answer_tokens=3) as running:
        usage = (await running.complete("hello", max_tokens=9, min_tokens=6))["usage"]
        assert usage["completion_tokens"] == 7  # and then the end
        assert (await running.complete("hello", max_tokens=9))["usage"]["completion_tokens"] == 4


async def test_a_stop_string_may_be_part_of_the_text():
    """`include_stop_str_in_output`."""
    async with running_worker() as running:
        text = (await running.complete("hello", max_tokens=9))["choices"][0]["text"]
        shown = await running.complete("hello", max_tokens=9, stop=text[2:4], include_stop_str_in_output=True)
        assert shown["choices"][0]["text"] == text[:4]


@pytest.mark.parametrize(
    "fields", [{"logit_bias": {"9999999": 1}}, {"allowed_token_ids": [9999999]}, {"stop_token_ids": [9999999]}]
)
async def test_a_rule_about_an_unknown_token_is_a_400(fields: dict[str, Any]):
    """And nobody's step fails."""
    async with running_worker() as running:
        status, answer = await running.post(COMPLETIONS, {"prompt": "x", **fields})
        assert (status, answer["error"]["param"]) == (400, next(iter(fields)))


async def test_what_is_not_to_be_stored_is_not_found_again():
    """`cache_policy: no-store`, at the top and in vllm_xargs."""
    async with running_worker() as running:
        for wish in ({"cache_policy": "no-store"}, {"vllm_xargs": {"cache_policy": "no-store"}}):
            assert await cached_tokens(running, **wish) == 0
        assert await cached_tokens(running) == 0
        assert await cached_tokens(running) == 96


async def test_a_marked_message_stays_when_others_go():
    """Anthropic's cache_control: the system prompt is pinned, the question after it is not."""
    rules = "rules " * 20
    marked = {"role": "system", "content": rules, "cache_control": {"type": "ephemeral"}}
    plain = {"role": "system", "content": rules}
    arguments = ("--num-gpu-blocks-override", "33", "--max-model-len", "256", "--pin-quota", "0.5")

    async def found(running: RunningWorker, system: dict[str, Any]) -> int:
        messages = [system, {"role": "user", "content": "question"}]
        usage = (await running.chat(messages=messages, max_tokens=1))["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    async def flood(running: RunningWorker) -> None:
        for first in range(10):
            await running.complete([first] * 200, max_tokens=1)

    async with running_worker(*arguments) as running:
        await found(running, plain)
        await flood(running)
        assert await found(running, plain) == 0
        await flood(running)
        await found(running, marked)
        await flood(running)
        pinned = await found(running, plain)
        assert len(rules) - 16 <= pinned < len(rules) + 48


async def test_a_bad_wish_is_a_400_that_names_its_field():
    """Before anything is computed."""
    async with running_worker() as running:
        for fields, param in (
            ({"cache_policy": "forever"}, "cache_policy.retention"),
            ({"vllm_xargs": {"cache_partition": "x"}}, "vllm_xargs.cache_partition"),
            ({"prompt_cache_retention": "1h"}, "prompt_cache_retention"),
        ):
            status, answer = await running.post(COMPLETIONS, {"prompt": "x", **fields})
            assert (status, answer["error"]["param"]) == (400, param)


async def test_the_lowest_priority_runs_first_when_the_scheduler_goes_by_it():
    """--scheduling-policy priority and the field `priority`."""
    async with running_worker("--scheduling-policy", "priority", "--max-num-seqs", "1") as running:
        order: list[int] = []

        async def ask(priority: int, max_tokens: int) -> None:
            await running.complete("x", max_tokens=max_tokens, priority=priority)
            order.append(priority)

        running.gate.pace_seconds = 0.01
        first = asyncio.create_task(ask(0, 2000))
        await running.until_metric("num_requests_running", lambda count: count == 1)
        others = [asyncio.create_task(ask(priority, 2)) for priority in (7, -1, 3)]
        await running.until_metric("num_requests_waiting", lambda count: count == 3)
        running.gate.pace_seconds = 0
        await asyncio.gather(first, *others)
        assert order == [0, -1, 3, 7]
