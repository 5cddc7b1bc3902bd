"""What bringing blocks back saves: 1,984 tokens of SmolLM2 from host memory and disk, against computing them again.

The prompt has one token more, so that each way ends with the same answer of one token, computed from the K/V that
came. The ways take turns; each figure is a median. "disk, cold" reads files that the page cache was told to forget.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.model_loading import load_model
from backends.runner import TorchRunner
from backends.tiers.options import add_tier_options, build_offload
from backends.types import GenerationRequest, SamplingParams

RESTORED_TOKENS = 1984
BAR = 5.0
BLOCK_TOKENS = 16
BLOCKS = RESTORED_TOKENS // BLOCK_TOKENS
CACHING = {"enable_prefix_caching": True}


class Way:
    """An engine of its own, with or without a tier; its prompt is computed once, and written through."""

    def __init__(self, model: TorchRunner, prompt: list[int], flags: list[str]) -> None:
        parser = argparse.ArgumentParser()
        add_tier_options(parser)
        options = parser.parse_args([*flags, "--kv-write-policy", "write-through"], argparse.Namespace(**CACHING))
        self.runner = TorchRunner(model.model)
        self.offload = build_offload(
            options, self.runner, model="smollm2", block_tokens=BLOCK_TOKENS, clock=time.perf_counter
        )
        config = EngineConfig(num_blocks=200, max_model_tokens=2048, max_batched_tokens=512)
        self._engine = Engine(config, self.runner, None, time.perf_counter, offload=self.offload, journal=self.offload)
        self._prompt = prompt
        self._number = 0
        self._expected_token: int | None = None
        self.seconds(0)

    def seconds(self, expected_cached: int) -> float:
        """Seconds from the request to its answer, with an empty pool."""
        assert self._engine.reset_prefix_cache()
        self._number += 1
        sampling = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)
        begin = time.perf_counter()
        self._engine.add(GenerationRequest(f"{self._number}", self._prompt, sampling))
        deltas = []
        while self._engine.has_work:
            deltas += self._engine.step()
        seconds = time.perf_counter() - begin
        token = deltas[-1].token_ids[0]
        self._expected_token = token if self._expected_token is None else self._expected_token
        if (token, deltas[-1].cached_tokens) != (self._expected_token, expected_cached):
            raise SystemExit(f"token {token}, {deltas[-1].cached_tokens} cached: that is not what was measured")
        return seconds

    def settle(self) -> None:
        """Until everything is written to disk."""
        while self.offload is not None and sum(stats.blocks for stats in self.offload.stats()) < BLOCKS:
            time.sleep(0.01)


def measure(rounds: int, dtype: str, threads: int) -> dict[str, Any]:
    """Medians of so many rounds."""
    model = load_model("smollm2", dtype=dtype, threads=threads).runner
    prompt = random.Random(0).choices(range(1000, 40_000), k=RESTORED_TOKENS + 1)
    with tempfile.TemporaryDirectory() as name:
        computed = Way(model, prompt, [])
        host = Way(model, prompt, ["--kv-offloading-size", "1"])
        disk = Way(model, prompt, ["--kv-disk", name, "--kv-disk-size", "1"])
        disk.settle()
        times: dict[str, list[float]] = {"computed": [], "host": [], "disk": [], "disk, cold": []}
        for way in (computed, host, disk):
            way.seconds(0 if way is computed else RESTORED_TOKENS)  # warms up
        for _ in range(rounds):
            times["computed"].append(computed.seconds(0))
            times["host"].append(host.seconds(RESTORED_TOKENS))
            times["disk"].append(disk.seconds(RESTORED_TOKENS))
            forget_pages(Path(name))
            times["disk, cold"].append(disk.seconds(RESTORED_TOKENS))
    medians = {way: median(seconds) for way, seconds in times.items()}
    best = {way: min(seconds) for way, seconds in times.items()}
    read, write = copy_microseconds(host.runner)
    return {
        "dtype": dtype,
        "threads": torch.get_num_threads(),
        "restored_bytes": BLOCKS * host.runner.block_bytes(BLOCK_TOKENS),
        "seconds": medians,
        "best_seconds": best,
        "times_faster": {way: medians["computed"] / medians[way] for way in medians if way != "computed"},
        "best_times_faster": {way: best["computed"] / best[way] for way in best if way != "computed"},
        "read_block_microseconds": read,
        "write_block_microseconds": write,
    }


def forget_pages(folder: Path) -> None:
    """Write the files out and have the page cache forget them."""
    for path in folder.rglob("*.kv"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def copy_microseconds(runner: TorchRunner) -> tuple[float, float]:
    """Per block, from the pool's memory and into it; the best of ten times all blocks."""
    ids = list(range(1, BLOCKS + 1))
    payloads = runner.read_blocks(ids)
    reading = best_seconds(lambda: runner.read_blocks(ids))
    writing = best_seconds(lambda: runner.write_blocks(ids, payloads))
    return reading / BLOCKS * 1e6, writing / BLOCKS * 1e6


def best_seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    figures = measure(options.rounds, options.dtype, options.threads)
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"SmolLM2 {figures['dtype']}, {figures['threads']} threads, {figures['restored_bytes'] / 1e6:.1f} MB of K/V")
    for way, seconds in figures["seconds"].items():
        faster = figures["times_faster"].get(way)
        bar = "" if faster is None else f"  {faster:5.1f} x  (bar {BAR:g})"
        print(f"{RESTORED_TOKENS} tokens, {way:10}  {seconds * 1e3:8.1f} ms{bar}", end="")
        print(f"   best {figures['best_seconds'][way] * 1e3:8.1f} ms")
    print(f"a block: read in {figures['read_block_microseconds']:.0f} us", end=", ")
    print(f"written in {figures['write_block_microseconds']:.0f} us")


if __name__ == "__main__":
    main()
