"""What is asked at each endpoint and answered there, and a gateway before workers that speak all of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.gateway.dialect_worker import EMBEDDINGS, as_vllm, message_events, recorded, response_events
from tests.gateway.running_gateway import Answer, Running, running_gateway
from tests.gateway.scripted_worker import Script, scripted_worker

SYSTEM = "Name the source of whatever you say, and keep it short. " * 40
USER = [{"role": "user", "content": "Who is there?"}]
CHAT = {"messages": [{"role": "system", "content": SYSTEM}, *USER]}
ASKS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Who is there?", "instructions": SYSTEM},
    "/v1/messages": {"messages": USER, "system": SYSTEM, "max_tokens": 9},
    "/v1/messages/count_tokens": {"messages": USER},
    "/v1/embeddings": {"input": ["Who", "is there?"]},
    "/tokenize": {"messages": USER},
    "/detokenize": {"tokens": [28120, 905]},
}
ANSWERS = {
    "/v1/responses": recorded("responses"),
    "/v1/messages": recorded("messages"),
    "/v1/messages/count_tokens": b'{"input_tokens":18}',
    "/v1/embeddings": EMBEDDINGS,
    "/tokenize": recorded("tokenize"),
    "/detokenize": recorded("detokenize"),
}
PATHS = list(ASKS)
SALTED = ("/v1/responses", "/v1/messages", "/v1/embeddings")
ANTHROPIC = ("/v1/messages", "/v1/messages/count_tokens")
STREAMS = {"/v1/responses": response_events("one", "北京🙂"), "/v1/messages": message_events("one", "北京🙂")}


@asynccontextmanager
async def workers(count: int = 1, script: Script = as_vllm, **options: Any) -> AsyncIterator[Any]:
    """A gateway before some workers that answer as vLLM does."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(scripted_worker(script)) for _ in range(count)]
        yield await stack.enter_async_context(running_gateway(*running, **options)), running


async def ask(running: Running, path: str, key: str = "acme-key", **more: Any) -> Answer:
    """The path's own request; `more` are fields of it."""
    body = json.dumps({"model": "m", **ASKS.get(path, CHAT), **more}).encode()
    return await running.ask(path=path, body=body, key=key)
