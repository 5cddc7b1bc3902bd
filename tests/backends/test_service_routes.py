"""The endpoints beside generation."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from backends.types import Batch
from tests.backends.server_builders import COMPLETIONS, running_worker


async def test_health_is_empty_and_follows_the_engine():
    """200 with nothing in it; 503 once the engine is dead, and requests get an error at once."""
    async with running_worker() as running:
        async with running.client.get("/health") as response:
            assert (response.status, await response.read()) == (200, b"")
        assert (await running.client.get("/ping")).status == 200
        assert (await running.client.post("/ping")).status == 200

        def die(_batch: Batch) -> list:
            return []

        running.runner.execute = die
        status, answer = await running.post(COMPLETIONS, {"prompt": "x"})
        assert (status, answer["error"]["type"]) == (500, "InternalServerError")
        async with running.client.get("/health") as response:
            assert (response.status, await response.read()) == (503, b"")
        status, _ = await asyncio.wait_for(running.post(COMPLETIONS, {"prompt": "x"}), 5)
        assert status == 500


async def test_a_draining_worker_is_not_healthy_and_takes_nothing_new():
    """503 on both, so that a gateway goes elsewhere."""
    async with running_worker() as running:
        running.worker.draining = True
        assert (await running.client.get("/health")).status == 503
        status, answer = await running.post(COMPLETIONS, {"prompt": "x"})
        assert (status, answer["error"]["type"]) == (503, "ServiceUnavailableError")


async def test_load_counts_requests_in_flight():
    """Up while one is served, down again."""
    async with running_worker() as running:
        running.gate.shut()
        request = asyncio.create_task(running.post(COMPLETIONS, {"prompt": "x"}))
        await running.gate.holds_a_step()
        assert await (await running.client.get("/load")).json() == {"server_load": 1}
        running.gate.open()
        await request
        assert await (await running.client.get("/load")).json() == {"server_load": 0}


async def test_every_served_name_has_a_card():
    """The first one is what answers and metrics say."""
    async with running_worker("--served-model-name", "big", "small", "--model", "somewhere/model") as running:
        cards = (await (await running.client.get("/v1/models")).json())["data"]
        assert [(card["id"], card["root"], card["max_model_len"]) for card in cards] == [
            ("big", "somewhere/model", 32768),
            ("small", "somewhere/model", 32768),
        ]
        assert (await running.complete("x", model="small"))["model"] == "small"
        assert (await running.complete("x"))["model"] == "big"
        status, answer = await running.post(COMPLETIONS, {"model": "other", "prompt": "x"})
        assert status == 404
        assert answer["error"]["message"] == "The model `other` does not exist. Valid aliases: big, small."


async def test_the_metrics_page_is_prometheus_text_and_counts_tokens():
    """Queries and hits in tokens, prompt tokens by their source."""
    async with running_worker("--block-size", "16") as running:
        for _ in range(2):
            await running.complete([5] * 100, max_tokens=3)
        async with running.client.get("/metrics") as response:
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            page = await response.text()
        seen = {
            sample.name: sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.labels == {"model_name": "smollm2", "engine": "0"}
        }
        assert seen["vllm:prefix_cache_queries_total"] == 200
        assert seen["vllm:prefix_cache_hits_total"] == 96
        assert seen["vllm:generation_tokens_total"] == 6
        assert seen["vllm:time_to_first_token_seconds_count"] == 2
        assert seen["vllm:inter_token_latency_seconds_count"] == 4
        assert "vllm:cache_config_info{" in page
        assert 'block_size="16"' in page
        assert "process_resident_memory_bytes" in page


async def test_tokens_go_there_and_back():
    """Also for text the template never saw."""
    async with running_worker() as running:
        text = "größe 日本 \U0001f642"
        _, tokens = await running.post("/tokenize", {"prompt": text, "return_token_strs": True})
        assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"]) == len(text.encode())
        assert await running.post("/detokenize", {"tokens": tokens["tokens"]}) == (200, {"prompt": text})


async def test_a_chat_is_tokenised_as_it_is_computed():
    """Whoever asks /tokenize counts the same prompt."""
    async with running_worker() as running:
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]}]
        _, tokens = await running.post("/tokenize", {"messages": messages})
        _, answer = await running.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
        assert answer["usage"]["prompt_tokens"] == tokens["count"]
        _, shorter = await running.post("/tokenize", {"messages": messages, "add_generation_prompt": False})
        assert shorter["count"] < tokens["count"]


async def test_tokenising_refuses_what_is_no_text():
    """400 with the place."""
    async with running_worker() as running:
        for body, param in (({}, "body.prompt"), ({"prompt": 7}, "body.prompt")):
            status, answer = await running.post("/tokenize", body)
            assert (status, answer["error"]["param"]) == (400, param)
        for body, param in (({}, "body.tokens"), ({"tokens": ["a"]}, "body.tokens"), ({"tokens": [-1]}, "prompt")):
            status, answer = await running.post("/detokenize", body)
            assert (status, answer["error"]["param"]) == (400, param)


async def test_a_reset_may_have_running_requests_start_anew():
    """vLLM's reset_running_requests: the stream goes on to its end, though all it had computed was forgotten."""
    async with running_worker(
        "--enable-dev-routes", "--block-size", "4", "--num-gpu-blocks-override", "200", "--max-model-len", "200"
    ) as running:
        running.gate.shut()
        answering = asyncio.create_task(running.complete([1] * 21, max_tokens=8))
        try:
            await running.gate.holds_a_step()
            path = "/reset_prefix_cache?reset_running_requests=true&reset_external=1"
            resetting = asyncio.create_task(running.post(path, None))
            await asyncio.sleep(0)
        finally:
            running.gate.open()
        assert await resetting == (200, {"success": True})
        answer = await answering
        assert answer["usage"]["completion_tokens"] == 8
        again = await running.complete([1] * 21, max_tokens=8)
        assert again["choices"][0]["text"] == answer["choices"][0]["text"]


async def test_a_reset_with_an_unknown_flag_is_refused():
    """400, as for every wrong field; nothing is forgotten."""
    small = ("--num-gpu-blocks-override", "200", "--max-model-len", "200")
    async with running_worker("--enable-dev-routes", *small) as running:
        status, answer = await running.post("/reset_prefix_cache?reset_external=maybe", None)
        assert (status, answer["error"]["param"]) == (400, "query.reset_external")


async def test_the_cache_is_reset_only_between_answers():
    """H-09: false during a stream and nothing cleared; true after it; the next same prompt hits nothing."""
    async with running_worker("--enable-dev-routes") as running:
        prompt = [5] * 100
        await running.complete(prompt, max_tokens=1)
        running.gate.pace_seconds = 0.005  # the stream takes ten seconds, unless somebody leaves it
        async with running.client.post(
            COMPLETIONS, json={"prompt": "x", "max_tokens": 2_000, "ignore_eos": True, "stream": True}
        ) as stream:
            first = await stream.content.readline()
            assert b"choices" in first, first
            assert await running.post("/reset_prefix_cache", None) == (200, {"success": False})
            usage = (await running.complete(prompt, max_tokens=1))["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == 96
            stream.close()
        await running.until_metric("num_requests_running", lambda running: running == 0)
        assert await running.post("/reset_prefix_cache", None) == (200, {"success": True})
        usage = (await running.complete(prompt, max_tokens=1))["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0


async def test_developers_routes_exist_only_when_asked_for():
    """As vLLM: 404 otherwise."""
    async with running_worker() as running:
        assert (await running.client.post("/reset_prefix_cache")).status == 404
        assert (await running.client.get("/server_info")).status == 404
    async with running_worker("--enable-dev-routes", "--block-size", "32") as running:
        info = await (await running.client.get("/server_info")).json()
        assert (info["block_size"], info["enable_prefix_caching"]) == (32, True)
        assert "api_key" not in str(info)


async def test_a_known_path_with_another_method_is_a_405():
    """With the methods it takes."""
    async with running_worker() as running, running.client.get(COMPLETIONS) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert await response.json() == {"detail": "Method Not Allowed"}


async def test_a_fault_of_ours_is_a_500_without_its_words(caplog):
    """The log has the place, nobody has the prompt."""
    secret = "-".join(["my", "secret", "prompt"])
    async with running_worker() as running:

        async def fail(*_arguments: object, **_options: object) -> None:
            raise KeyError(secret)

        running.worker.prompts.read = fail
        status, answer = await running.post(COMPLETIONS, {"prompt": "x"})
        assert (status, answer["error"]["message"]) == (500, "The worker failed on this request.")
        assert "KeyError" in caplog.text
        assert secret not in caplog.text
