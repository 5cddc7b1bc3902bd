"""Who may pull from whom: tokens, named peers, well-formed questions, and only so many at once."""

from __future__ import annotations

import pytest

from backends.exchange.block_stream import HEAD_BYTES
from backends.exchange.pull import BLOCKS_PATH
from tests.backends.exchange.exchange_builders import (
    PROMPT,
    TOKEN,
    giver,
    outcomes,
    payloads,
    pull,
    taker,
    two_workers,
)
from tests.backends.server_builders import until


async def test_a_wrong_token_gets_nothing(tmp_path):
    """The peer refuses, the answer says so, and the prompt is computed."""
    async with giver(tmp_path, token="another-token-of-enough-length") as first:
        await first.complete(PROMPT)
        async with taker(tmp_path, first.url) as second:
            answer = await pull(second, first.url, PROMPT)
            assert (answer["pulled_tokens"], answer["reason"]) == (0, "peer_refused")
            assert await outcomes(second) == {"peer_refused": 1}
            assert len(await payloads(second)) == 0
            assert (await second.complete(PROMPT))["usage"]["prompt_tokens"] == 41


async def test_only_named_peers_are_asked(tmp_path):
    """Whatever else `from` says is refused, so that nobody can make a worker call an address of his choice."""
    async with two_workers(tmp_path) as (first, second):
        for url in ("http://169.254.169.254/", "http://127.0.0.1:1", first.url + "/other", first.url + "@evil", ""):
            status, answer = await second.post("/v1/cache/pull", {"from": url, "prompt": PROMPT})
            assert (status, answer["error"]["param"]) == (400, "from")
        status, _ = await second.post("/v1/cache/pull", {"prompt": PROMPT})
        assert status == 400


async def test_without_the_token_no_block_leaves(tmp_path):
    """403 without, with a wrong, and with an API key in its place; the API key is not asked of peers."""
    async with giver(tmp_path, "--api-key", "api-key") as first:
        await first.post("/v1/completions", {"prompt": PROMPT}, Authorization="Bearer api-key")
        question = {"hash": "00" * 32, "after": "00" * 32}
        for headers in ({}, {"Authorization": "Bearer api-key"}, {"Authorization": f"Basic {TOKEN}"}):
            async with first.client.get(BLOCKS_PATH, params=question, headers=headers) as response:
                assert response.status == 403
        async with first.client.get(
            BLOCKS_PATH, params=question, headers={"Authorization": f"Bearer {TOKEN}"}
        ) as response:
            assert response.status == 200
            assert len(await response.read()) == HEAD_BYTES


@pytest.mark.parametrize(
    "question",
    [{}, {"hash": "xyz", "after": "00" * 32}, {"hash": "00" * 31, "after": "00" * 32}, {"hash": "00" * 32}],
)
async def test_a_malformed_question_is_refused(tmp_path, question):
    """400 that names the field."""
    async with giver(tmp_path) as first:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with first.client.get(BLOCKS_PATH, params=question, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] in ("hash", "after")


async def test_only_so_many_peers_are_served_at_once(tmp_path):
    """One more is told to come later, and computes."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        first.worker.exchange.serving = 4
        assert (await pull(second, first.url, PROMPT))["reason"] == "peer_busy"
        first.worker.exchange.serving = 0
        assert (await pull(second, first.url, PROMPT))["reason"] == "ok"


async def test_a_peer_that_leaves_frees_its_place(tmp_path):
    """The giver goes on, and serves the next one."""
    async with giver(tmp_path) as first:
        await first.complete(PROMPT)
        question = {"hash": "00" * 32, "after": "00" * 32}
        for _ in range(10):
            response = await first.client.get(
                BLOCKS_PATH, params=question, headers={"Authorization": f"Bearer {TOKEN}"}
            )
            response.close()

        async def free() -> bool:
            return first.worker.exchange.serving == 0

        await until(free, "a place was never given back")
