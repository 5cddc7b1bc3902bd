"""Generation over HTTP: what is cached, where answers end, how batches and streams are told apart."""

from __future__ import annotations

import pytest

from tests.backends.server_builders import CHAT, COMPLETIONS, events, running_worker


@pytest.mark.parametrize(("shared", "cached"), [(15, 0), (16, 16), (47, 32)])
@pytest.mark.parametrize("stream", [False, True])
async def test_cached_tokens_are_the_shared_full_blocks(shared: int, cached: int, stream: bool):
    """H-01, D-12: ⌊shared/B⌋·B, streamed or not."""
    async with running_worker("--block-size", "16") as running:
        head = [7] * shared
        await running.complete([*head, *[1] * 40], max_tokens=1)
        body = {"prompt": [*head, *[2] * 40], "max_tokens": 1, "stream": stream}
        if not stream:
            usage = (await running.complete(**body))["usage"]
        else:
            body["stream_options"] = {"include_usage": True}
            async with running.client.post(COMPLETIONS, json=body) as response:
                usage = events(await response.read())[-2]["usage"]
        assert usage["prompt_tokens"] == shared + 40
        assert usage["prompt_tokens_details"]["cached_tokens"] == cached


async def test_a_prompt_that_is_cached_to_its_end_still_computes_its_last_token():
    """64 tokens of four full blocks: at most three hit."""
    async with running_worker("--block-size", "16") as running:
        for expected in (0, 48):
            usage = (await running.complete([5] * 64, max_tokens=1))["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == expected


async def test_a_conversation_finds_its_earlier_turns():
    """D-12: turn two hits what turn one computed, its answer included."""
    async with running_worker() as running:
        messages = [{"role": "user", "content": "tell me about caches " * 10}]
        _, first = await running.post(CHAT, {"messages": messages, "max_tokens": 40})
        messages += [first["choices"][0]["message"], {"role": "user", "content": "and more"}]
        _, second = await running.post(CHAT, {"messages": messages, "max_tokens": 4})
        known = first["usage"]["total_tokens"] - 1
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16


async def test_salts_keep_caches_apart():
    """Equal prompts, three salts, no hit but the own one."""
    async with running_worker() as running:
        hits = []
        for salt in ("a", "b", None, "a"):
            usage = (await running.chat("x" * 100, max_tokens=1, cache_salt=salt))["usage"]
            hits.append(usage["prompt_tokens_details"]["cached_tokens"])
        assert hits[:3] == [0, 0, 0]
        assert hits[3] > 0


async def test_without_prefix_caching_nothing_is_cached():
    """--no-enable-prefix-caching."""
    async with running_worker("--no-enable-prefix-caching") as running:
        for _ in range(2):
            details = (await running.chat("x" * 100, max_tokens=1))["usage"]["prompt_tokens_details"]
            assert details == {"cached_tokens": 0, "created_cache_tokens": None, "multimodal_tokens": None}


async def test_details_of_the_prompt_can_be_switched_off():
    """vLLM's default is our option."""
    async with running_worker("--no-enable-prompt-tokens-details") as running:
        assert (await running.chat(max_tokens=1))["usage"]["prompt_tokens_details"] is None


async def test_prompt_and_answer_may_fill_the_model_to_the_last_token():
    """H-18: the limit is served, one more is a 400 with both numbers, and nothing of it is cached."""
    async with running_worker("--max-model-len", "100") as running:
        answer = await running.complete([3] * 60, max_tokens=40)
        assert answer["usage"]["total_tokens"] == 100
        queries = await running.metric("prefix_cache_queries_total")
        status, refusal = await running.post(COMPLETIONS, {"prompt": [4] * 60, "max_tokens": 41})
        assert status == 400
        assert refusal["error"]["message"] == (
            "This model's maximum context length is 100 tokens. However, you requested 41 output tokens and your "
            "prompt contains 60 input tokens, for a total of 101 tokens. Please reduce the length of the input prompt "
            "or the number of requested output tokens. (parameter=input_tokens, value=60)"
        )
        assert await running.metric("prefix_cache_queries_total") == queries
        assert (await running.complete([4] * 60, max_tokens=1))["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_a_chat_without_max_tokens_goes_on_to_the_models_end():
    """And needs room for one token at least."""
    async with running_worker("--max-model-len", "100") as running:
        answer = await running.chat("hi")
        assert answer["usage"]["total_tokens"] == 100
        assert answer["choices"][0]["finish_reason"] == "length"
        status, _ = await running.post(COMPLETIONS, {"prompt": [1] * 100, "max_tokens": 1})
        assert status == 400


async def test_an_answer_ends_where_the_model_ends_it():
    """finish_reason stop, and the end token counts."""
    async with running_worker(answer_tokens=5) as running:
        answer = await running.chat(max_tokens=50)
        assert (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == ("stop", 6)
        assert (await running.chat(max_tokens=50, ignore_eos=True))["usage"]["completion_tokens"] == 50


async def test_a_stop_string_ends_the_text_before_itself():
    """And is named, streamed or not."""
    async with running_worker() as running:
        text = (await running.complete("x", max_tokens=40))["choices"][0]["text"]
        stop = text[10:14]
        choice = (await running.complete("x", max_tokens=40, stop=[stop]))["choices"][0]
        expected = text[: text.index(stop)]
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (expected, "stop", stop)
        body = {"prompt": "x", "max_tokens": 40, "stop": stop, "stream": True}
        async with running.client.post(COMPLETIONS, json=body) as response:
            chunks = events(await response.read())[:-1]
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected


async def test_a_stop_token_ends_the_answer_and_is_named_by_its_id():
    """Its text is not shown; it counts as generated."""
    async with running_worker() as running:
        text = (await running.complete("x", max_tokens=40))["choices"][0]["text"]
        stop = ord(text[5])
        answer = await running.complete("x", max_tokens=40, stop_token_ids=[stop])
        choice, known = answer["choices"][0], text.index(text[5])
        assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (text[:known], "stop", stop)
        assert answer["usage"]["completion_tokens"] == known + 1


async def test_a_batch_with_several_answers_is_numbered_by_prompt():
    """OpenAI: choice = prompt · n + answer."""
    async with running_worker() as running:
        answer = await running.complete(["a", "bb"], n=2, max_tokens=3, temperature=1.0)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
        texts = [choice["text"] for choice in answer["choices"]]
        assert texts[0] == texts[1] != texts[2] == texts[3]
        assert answer["usage"]["prompt_tokens"] == 3
        assert answer["usage"]["completion_tokens"] == 12


async def test_a_streamed_batch_keeps_its_answers_apart():
    """The same texts as in one piece, usage last."""
    async with running_worker() as running:
        body = {"prompt": ["a", "bb"], "n": 2, "max_tokens": 5, "temperature": 1.0}
        whole = await running.complete(**body)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async with running.client.post(COMPLETIONS, json=body | options) as response:
            *chunks, usage, done = events(await response.read())
        texts = [""] * 4
        for chunk in chunks:
            texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
        assert texts == [choice["text"] for choice in whole["choices"]]
        assert usage["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
        assert done == "[DONE]"


async def test_usage_can_come_with_every_chunk():
    """continuous_usage_stats."""
    async with running_worker() as running:
        options = {"include_usage": True, "continuous_usage_stats": True}
        body = {"prompt": "x", "max_tokens": 3, "stream": True, "stream_options": options}
        async with running.client.post(COMPLETIONS, json=body) as response:
            chunks = events(await response.read())[:-2]
        assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3]


async def test_the_usage_of_a_chunk_is_that_of_its_answer():
    """Nothing with a role, and the other answer's tokens are none of its own; the last usage is of both."""
    async with running_worker() as running:
        options = {"include_usage": True, "continuous_usage_stats": True}
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "n": 2}
        async with running.client.post(CHAT, json={**body, "stream": True, "stream_options": options}) as response:
            chunks = events(await response.read())[:-1]
        counted = {0: [], 1: []}
        for chunk in chunks[:-1]:
            counted[chunk["choices"][0]["index"]].append(chunk["usage"]["completion_tokens"])
        assert counted == {0: [0, 1, 2], 1: [0, 1, 2]}
        assert chunks[-1]["usage"]["completion_tokens"] == 4


async def test_logprobs_come_where_they_were_asked_for():
    """In both shapes."""
    async with running_worker() as running:
        chat = await running.chat(max_tokens=2, logprobs=True, top_logprobs=1)
        tokens = chat["choices"][0]["logprobs"]["content"]
        assert "".join(token["token"] for token in tokens) == chat["choices"][0]["message"]["content"]
        assert all(len(token["top_logprobs"]) == 1 for token in tokens)
        completion = await running.complete("x", max_tokens=2, logprobs=1)
        assert completion["choices"][0]["logprobs"]["text_offset"] == [0, 1]
