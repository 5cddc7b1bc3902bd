"""What is not served says so, in the shape of every other error."""

from __future__ import annotations

import pytest

from backends.refused_routes import NO_ADAPTER_ROUTES, NOT_SERVED
from tests.backends.server_builders import COMPLETIONS, running_worker


async def test_every_endpoint_that_is_not_served_says_why():
    """400 in vLLM's words where its model could not do it either."""
    async with running_worker() as running:
        for path, (name, instead) in NOT_SERVED.items():
            status, answer = await running.post(path, {"model": "smollm2", "input": "x"})
            assert (status, answer["error"]["type"], answer["error"]["code"]) == (400, "BadRequestError", 400), path
            assert answer["error"]["message"] == f"The model does not support {name}: {instead}."


async def test_adapters_are_not_loaded_and_not_pretended():
    """404 as a vLLM without --enable-lora, and an adapter's name is no model's."""
    async with running_worker() as running:
        for path in NO_ADAPTER_ROUTES:
            status, answer = await running.post(path, {"lora_name": "a", "lora_path": "b"})
            assert (status, answer["error"]["type"]) == (404, "NotFoundError")
            assert "no LoRA" in answer["error"]["message"]
        status, answer = await running.post(COMPLETIONS, {"model": "my-adapter", "prompt": "x"})
        assert (status, answer["error"]["param"]) == (404, "model")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses"])
async def test_they_are_behind_the_key_as_all_of_v1(path: str):
    """Nobody learns by an open door what is behind it."""
    async with running_worker("--api-key", "one") as running:
        assert (await running.post(path, {}))[0] == 401
