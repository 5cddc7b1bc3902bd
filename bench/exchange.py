"""What KV events cost a step, and what pulling blocks costs beside computing them: two workers on this machine.

Events: CPU time of a step with 64 running sequences, with and without a publisher, interleaved, best of several.
Pull: SmolLM2 on the CPU, a long prompt computed by one worker, then pulled by the other over HTTP; wall time, median.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from backends.accounts import EngineStats
from backends.arguments import parse_arguments
from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.events.config import EventsConfig
from backends.events.publisher import EventPublisher
from backends.events.service import NO_EVENTS, EventService
from backends.loading import load
from backends.log_line import Pulse
from backends.server import build_runner
from backends.serving import Worker
from backends.simulated import SimulatedRunner, Timing
from backends.types import GenerationRequest, SamplingParams
from backends.wiring import build_worker

VOCAB_SIZE = 50_000
STEPS = 64
"""Each of 64 sequences fills four blocks in so many steps: four events a step."""


def ignore(_stats: EngineStats) -> None:
    """Nobody watches."""


class Stepping:
    """An engine at 64 running sequences, and its events or none."""

    def __init__(self, events: EventService) -> None:
        config = EngineConfig(num_blocks=200_000, max_model_tokens=60_000, max_batched_tokens=8192)
        runner = SimulatedRunner(Timing(), time.sleep, vocab_size=VOCAB_SIZE)
        self.engine = Engine(config, runner, None, time.monotonic, journal=events.journal)
        self.flush = events.before(ignore)
        for number in range(64):
            prompt = array("I", random.choices(range(VOCAB_SIZE), k=2048))
            self.engine.add(GenerationRequest(f"{number}", prompt, SamplingParams(max_tokens=50_000)))
        while self.engine.stats().waiting:
            self.step()

    def step(self) -> None:
        """One step, and its events."""
        self.engine.step()
        self.flush(self.engine.stats())

    def microseconds(self) -> float:
        """CPU time of this thread for a step."""
        start = time.thread_time()
        for _ in range(STEPS):
            self.step()
        return (time.thread_time() - start) / STEPS * 1e6


def events_cost(repeats: int) -> dict[str, float]:
    publisher = EventPublisher(EventsConfig(True, endpoint="tcp://127.0.0.1:*"))
    events = EventService(publisher)
    events.start()
    silent, telling = Stepping(NO_EVENTS), Stepping(events)
    pairs = [(silent.microseconds(), telling.microseconds()) for _ in range(repeats)]
    events.stop()
    without, with_events = (min(times) for times in zip(*pairs, strict=True))
    return {
        "step_microseconds_64_running": without,
        "step_microseconds_64_running_with_events": with_events,
    }


@asynccontextmanager
async def worker(token_file: Path, *arguments: str) -> AsyncIterator[str]:
    """SmolLM2 with default settings; its URL."""
    size = ("--model", "smollm2", "--max-model-len", "4096", "--num-gpu-blocks-override", "600")
    exchange = ("--enable-cache-routes", "--peer-token-file", str(token_file), "--enable-dev-routes")
    options = parse_arguments([*size, *exchange, *arguments])
    async with listening(build_worker(options, load(options), Pulse())) as url:
        yield url


@asynccontextmanager
async def listening(built: Worker) -> AsyncIterator[str]:
    """A worker on a free port of this machine; its URL."""
    built.engine.start()
    runner = build_runner(built, shutdown_seconds=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0])
    finally:
        await runner.cleanup()
        await built.exchange.close()
        await built.engine.stop()


async def pull_cost(tokens: int, repeats: int) -> dict[str, float]:
    generator = random.Random(1)
    pulls, computes, size = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        token_file = Path(folder) / "token"
        token_file.write_text("a-token-for-this-bench-only")
        async with (
            worker(token_file) as first,
            worker(token_file, "--peer", first) as second,
            aiohttp.ClientSession() as client,
        ):

            async def post(url: str, path: str, **body: object) -> tuple[float, dict]:
                started = time.perf_counter()
                async with client.post(url + path, json=body) as response:
                    answer = await response.json()
                    assert response.status == 200, answer
                return time.perf_counter() - started, answer

            for _ in range(repeats):
                prompt = [generator.randrange(17, 49_000) for _ in range(tokens)]
                seconds, _ = await post(first, "/v1/cache/warm", prompt=prompt)
                computes.append(seconds)
                seconds, answer = await post(second, "/v1/cache/pull", prompt=prompt, **{"from": first})
                assert answer["pulled_tokens"] == tokens // 16 * 16, answer
                pulls.append(seconds)
                size = answer["pulled_tokens"]
                await post(second, "/reset_prefix_cache")
    return {
        "tokens": size,
        "compute_milliseconds": statistics.median(computes) * 1e3,
        "pull_milliseconds": statistics.median(pulls) * 1e3,
        "pull_times_faster": statistics.median(c / p for c, p in zip(computes, pulls, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1984)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    figures = {**events_cost(options.repeats), **asyncio.run(pull_cost(options.tokens, options.repeats))}
    print(
        json.dumps(figures) if options.json else "\n".join(f"{name:44} {value:9.2f}" for name, value in figures.items())
    )


if __name__ == "__main__":
    main()
