"""Two workers that may exchange blocks, each on a real socket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.backends.server_builders import RunningWorker, running_worker

TOKEN = "correct-horse-battery-staple"
SMALL = ("--block-size", "4", "--max-model-len", "512", "--num-gpu-blocks-override", "200")
SLOW_PREFILL = ("--simulated-prefill-tokens-per-second", "200")
PROMPT = list(range(1, 42))
"""Ten full blocks of four, and a token."""


def token_file(folder: Path, token: str = TOKEN) -> str:
    """A file with the peers' secret."""
    path = folder / f"token-{abs(hash(token))}"
    path.write_text(token + os.linesep)
    return str(path)


@asynccontextmanager
async def giver(folder: Path, *arguments: str, **settings: Any) -> AsyncIterator[RunningWorker]:
    """A worker that gives blocks to whoever knows the token."""
    token = settings.pop("token", TOKEN)
    more = ("--enable-cache-routes", "--peer-token-file", token_file(folder, token), *SMALL, *arguments)
    async with running_worker(*more, **settings) as worker:
        yield worker


@asynccontextmanager
async def taker(folder: Path, peer: str, *arguments: str, **settings: Any) -> AsyncIterator[RunningWorker]:
    """A worker that may pull from `peer`."""
    async with giver(folder, "--peer", peer, *arguments, **settings) as worker:
        yield worker


@asynccontextmanager
async def two_workers(folder: Path, *arguments: str) -> AsyncIterator[tuple[RunningWorker, RunningWorker]]:
    """(giver, taker)."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(giver(folder, *arguments))
        yield first, await stack.enter_async_context(taker(folder, first.url, *arguments))


async def pull(worker: RunningWorker, peer: str, prompt: Any, **fields: Any) -> Any:
    """The answer to a pull, which must be a 200."""
    status, answer = await worker.post("/v1/cache/pull", {"from": peer, "prompt": prompt, **fields})
    assert status == 200, answer
    return answer


async def cached_tokens(worker: RunningWorker, prompt: Any, **fields: Any) -> int:
    """What a completion of this prompt finds cached."""
    answer = await worker.complete(prompt, max_tokens=1, **fields)
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def cached_hashes(worker: RunningWorker) -> set[str]:
    """The names of all blocks that the worker has cached."""
    pool = worker.worker.holdings.cache.pool
    return {block.key.digest.hex() for block in pool.blocks(slice(None)) if block.key is not None}


async def payloads(worker: RunningWorker, prompt: list[int] = PROMPT, salt: str | None = None) -> list[bytes]:
    """The K/V that the worker has of a prompt."""
    holdings = worker.worker.holdings

    def read() -> list[bytes]:
        chain = holdings.prompt(prompt, cache_salt=salt)
        return holdings.read(chain.keys[: chain.held_blocks])

    return await worker.worker.engine.call(read)


async def outcomes(worker: RunningWorker) -> dict[str, int]:
    """How the worker's pulls ended."""
    puller = worker.worker.exchange.puller
    assert puller is not None
    return dict(puller.outcomes)
