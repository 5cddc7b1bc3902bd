"""Exchange between worker processes: blocks come, and a peer that is killed costs nothing but computing."""

from __future__ import annotations

import signal

import aiohttp

from tests.backends.exchange.exchange_builders import SMALL, token_file
from tests.backends.worker_process import worker_process

PROMPT = list(range(1, 42))


async def test_a_worker_pulls_from_another_until_that_is_killed(tmp_path):
    """kill -9 of the peer: the next pull says so, the one after does not even try, and requests go on."""
    exchange = ("--simulated", *SMALL, "--enable-cache-routes", "--peer-token-file", token_file(tmp_path))
    async with worker_process(*exchange) as first, worker_process(*exchange, "--peer", first.url) as second:
        async with aiohttp.ClientSession() as client:

            async def post(url: str, path: str, **body):
                async with client.post(url + path, json=body) as response:
                    assert response.status == 200
                    return await response.json()

            async def pull(prompt) -> tuple[int, str]:
                answer = await post(second.url, "/v1/cache/pull", prompt=prompt, **{"from": first.url})
                return answer["pulled_tokens"], answer["reason"]

            computed = await post(first.url, "/v1/completions", prompt=PROMPT, max_tokens=8)
            assert await pull(PROMPT) == (40, "ok")
            answered = await post(second.url, "/v1/completions", prompt=PROMPT, max_tokens=8)
            assert answered["usage"]["prompt_tokens_details"]["cached_tokens"] == 40
            assert answered["choices"][0]["text"] == computed["choices"][0]["text"]
            await first.end(signal.SIGKILL)
            assert await pull([9] * 41) == (0, "peer_down")
            assert await pull([8] * 41) == (0, "peer_resting")
            after = await post(second.url, "/v1/completions", prompt=[9] * 41, max_tokens=1)
            assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
