"""What the worker's engine costs beside the model, in CPU time, best of several: steps, look-ups, the prefix cache.

The cache's share at 0 % hits: the CPU time that a cold prompt of 8,192 tokens costs more with the prefix cache than
without it, per token, over the CPU time of a token's prefill by SmolLM2 (bf16 where the processor has it), both of the
same run on one thread. A larger model makes the share smaller.
"""

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
from backends.types import GenerationRequest, Runner, SamplingParams
from router.tokenise import find_smollm2

VOCAB_SIZE = 49_000
PROMPT_TOKENS = 8192
BURST_SEQUENCES = 64
BURST_TOKENS = 256
BURST_ROUNDS = 8


def build_engine(runner: Runner | None = None, **changes: object) -> Engine:
    settings = {"num_blocks": 40_000, "max_model_tokens": 20_000, "max_batched_tokens": 8192}
    runner = runner or SimulatedRunner(Timing(), time.sleep, vocab_size=VOCAB_SIZE)
    return Engine(EngineConfig(**{**settings, **changes}), runner, None, time.monotonic)


def random_prompt(tokens: int) -> array[int]:
    return array("I", random.choices(range(VOCAB_SIZE), k=tokens))


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def run(engine: Engine) -> None:
    while engine.has_work:
        engine.step()


def step_microseconds(running: int) -> float:
    """Schedule, commit and emit one step of sequences that generate; no model, no text."""
    engine = build_engine()
    for number in range(running):
        engine.add(GenerationRequest(f"{number}", random_prompt(128), SamplingParams(max_tokens=1000)))
    while engine.stats().waiting:
        engine.step()
    return best_seconds(lambda: [engine.step() for _ in range(20)], 20) / 20 * 1e6


def lookup_milliseconds() -> float:
    """Find all blocks of a prompt whose blocks are named, as they are for every look-up but the first."""
    engine, prompt = build_engine(), random_prompt(PROMPT_TOKENS)
    engine.add(GenerationRequest("warm", prompt, SamplingParams(max_tokens=0)))
    run(engine)
    root, keys = engine.cache.names(prompt)
    assert len(engine.cache.held(keys, root)) == PROMPT_TOKENS // 16
    return best_seconds(lambda: engine.cache.held(keys, root), 50) * 1e3


def request_milliseconds(*, cached: bool, **changes: object) -> float:
    """A prompt of 8,192 tokens and one token of output: add, look up, run, register, end."""
    engine, prompt, names = build_engine(**changes), random_prompt(PROMPT_TOKENS), iter(range(1000))

    def answer() -> None:
        if not cached:
            engine.reset_prefix_cache()
        engine.add(GenerationRequest(f"{next(names)}", prompt, SamplingParams(max_tokens=1)))
        run(engine)

    answer()
    return best_seconds(answer, 30) * 1e3


def prefill_microseconds_per_token() -> float | None:
    """A real model's CPU time for a token of a prompt of 512; None without one."""
    if find_smollm2() is None:
        return None
    from backends.model_loading import load_model

    engine = build_engine(load_model("smollm2", threads=1).runner, num_blocks=200, enable_prefix_caching=False)
    prompt, names = random_prompt(512), iter(range(1000))

    def answer() -> None:
        engine.add(GenerationRequest(f"{next(names)}", prompt, SamplingParams(max_tokens=0)))
        run(engine)

    answer()
    return best_seconds(answer, 5) / 512 * 1e6


def cache_share_of_prefill(cold_milliseconds: float, uncached_milliseconds: float) -> dict[str, float]:
    """What the prefix cache adds to a prompt of which it finds nothing."""
    ours = (cold_milliseconds - uncached_milliseconds) * 1e3 / PROMPT_TOKENS
    figures = {"cache_microseconds_per_prompt_token_at_0_hits": ours}
    theirs = prefill_microseconds_per_token()
    if theirs is not None:
        figures["smollm2_prefill_microseconds_per_token"] = theirs
        figures["cache_percent_of_prefill_at_0_hits"] = 100 * ours / theirs
    return figures


def burst(ahead_tokens: int, num_blocks: int) -> tuple[float, int]:
    """CPU seconds of a burst of 64 answers of 256 tokens, and how many were preempted for it."""
    engine = build_engine(num_blocks=num_blocks, num_preallocate_tokens=ahead_tokens, enable_prefix_caching=False)
    for number in range(BURST_SEQUENCES):
        engine.add(GenerationRequest(f"{number}", random_prompt(64), SamplingParams(max_tokens=BURST_TOKENS)))
    start = time.process_time()
    run(engine)
    return time.process_time() - start, engine.stats().preemptions


def burst_figures() -> dict[str, float]:
    """Blocks taken ahead, in a pool that holds everybody and in one that holds two thirds; rounds take turns."""
    whole = BURST_SEQUENCES * (64 + BURST_TOKENS) // 16 + 1
    best: dict[str, float] = {}
    for _ in range(BURST_ROUNDS):
        for ahead in (0, 16, 64, 256):
            for pool, num_blocks in (("", whole), ("_tight_pool", whole * 2 // 3)):
                seconds, preempted = burst(ahead, num_blocks)
                name = f"burst_microseconds_per_token{pool}_ahead_{ahead}"
                best[name] = min(best.get(name, seconds), seconds)
                best[f"burst_preempted{pool}_ahead_{ahead}"] = preempted
    tokens = BURST_SEQUENCES * BURST_TOKENS
    return {name: value / tokens * 1e6 if "microseconds" in name else value for name, value in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    as_json = parser.parse_args().json
    cold, uncached = request_milliseconds(cached=False), request_milliseconds(cached=False, enable_prefix_caching=False)
    figures = {
        "step_microseconds_64_running": step_microseconds(64),
        "step_microseconds_256_running": step_microseconds(256),
        "lookup_milliseconds_8192_tokens": lookup_milliseconds(),
        "whole_request_milliseconds_8192_tokens_cold": cold,
        "whole_request_milliseconds_8192_tokens_cache_off": uncached,
        "whole_request_milliseconds_8192_tokens_cached": request_milliseconds(cached=True),
        **cache_share_of_prefill(cold, uncached),
        **burst_figures(),
    }
    print(json.dumps(figures) if as_json else "\n".join(f"{name:56} {value:8.3f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
