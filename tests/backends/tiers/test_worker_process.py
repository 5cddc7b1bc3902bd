"""A whole worker with a disk tier: what one process computed, the next one finds; figures and events tell of it."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from tests.backends.worker_process import WorkerProcess, worker_process

PROMPT = "A prompt of some length, that is worth keeping. " * 6
FLAGS = ("--simulated", "--simulated-prefill-tokens-per-second", "4000", "--kv-write-policy", "write-through")


def count_files(folder: Path) -> int:
    return len(list(folder.rglob("*.kv")))


async def cached_tokens(worker: WorkerProcess) -> int:
    answer = await worker.client().completions.create(model="smollm2", prompt=PROMPT, max_tokens=2)
    return answer.usage.prompt_tokens_details.cached_tokens


async def metric(worker: WorkerProcess, name: str, tier: str | None = None) -> float:
    """One sample of the worker's /metrics."""
    name += "{" if tier is None else f'{{engine="0",model_name="smollm2",tier="{tier}"}}'
    async with aiohttp.ClientSession() as session, session.get(f"{worker.url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return float(next(line for line in lines if line.startswith(name)).rsplit(" ", 1)[1])


async def test_a_restarted_worker_finds_its_blocks_on_disk(tmp_path: Path):
    """The prompt's full blocks but the last, and the metrics say where from."""
    async with worker_process(*FLAGS, "--kv-disk", str(tmp_path), "--kv-offloading-size", "0.1") as worker:
        assert await cached_tokens(worker) == 0
        assert await metric(worker, "vllm:kv_offload_stores_total", "host") == 18
        assert await worker.end() == 0
    assert count_files(tmp_path) == 18
    async with worker_process(*FLAGS, "--kv-disk", str(tmp_path)) as worker:
        assert await cached_tokens(worker) == 272
        assert await metric(worker, "vllm:external_prefix_cache_hits_total") == 272
        assert await metric(worker, "vllm:kv_offload_tiering_chunk_hits_total", "disk") == 17
        assert await worker.end() == 0
