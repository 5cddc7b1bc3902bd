"""What the worker's engine costs without a model: µs per step and ms per look-up, CPU time, best of several."""

from __future__ import annotations

import argparse
import json
import random
import time
from array import array
from collections.abc import Callable

from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.simulated import SimulatedRunner, Timing
from backends.types import GenerationRequest, SamplingParams

VOCAB_SIZE = 50_000


def build_engine() -> Engine:
    config = EngineConfig(num_blocks=40_000, max_model_tokens=20_000, max_batched_tokens=8192)
    runner = SimulatedRunner(Timing(), time.sleep, vocab_size=VOCAB_SIZE)
    return Engine(config, runner, None, time.monotonic)


def random_prompt(tokens: int) -> array[int]:
    return array("I", random.choices(range(VOCAB_SIZE), k=tokens))


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def step_microseconds(running: int) -> float:
    engine = build_engine()
    for number in range(running):
        engine.add(GenerationRequest(f"{number}", random_prompt(128), SamplingParams(max_tokens=1000)))
    while engine.stats().waiting:
        engine.step()
    return best_seconds(lambda: [engine.step() for _ in range(20)], 20) / 20 * 1e6


def whole_request_milliseconds(tokens: int) -> tuple[float, float]:
    """A request of one token of output, cold and with its prompt cached: add, look up, run, register, end."""
    engine, prompt, name = build_engine(), random_prompt(tokens), iter(range(1000))

    def answer() -> None:
        engine.add(GenerationRequest(f"{next(name)}", prompt, SamplingParams(max_tokens=1)))
        while engine.has_work:
            engine.step()

    def cold() -> None:
        engine.reset_prefix_cache()
        answer()

    return best_seconds(cold, 20) * 1e3, best_seconds(answer, 20) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    as_json = parser.parse_args().json
    cold, cached = whole_request_milliseconds(8192)
    figures = {
        "step_microseconds_64_running": step_microseconds(64),
        "step_microseconds_256_running": step_microseconds(256),
        "whole_request_milliseconds_8192_tokens_cold": cold,
        "whole_request_milliseconds_8192_tokens_cached": cached,
    }
    print(json.dumps(figures) if as_json else "\n".join(f"{name:48} {value:8.2f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
