"""llama.cpp's server (PyPI: xllamacpp) for bench/worker.py, in a process of its own, asked over HTTP.

Run as a program it serves: `python bench/worker_llama.py THREADS SLOTS CONTEXT_TOKENS` prints the CPU features it uses
and its address, and ends with its standard input. Tokens a second are what the server itself reports.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from router.tokenise import find_smollm2

START_SECONDS = 60.0


def is_installed() -> bool:
    """Whether llama.cpp's wheel is there; the bench does without."""
    return find_spec("xllamacpp") is not None


class LlamaServer:
    """A running server; leaving the block ends it. `features` is what llama.cpp says of the CPU."""

    def __init__(self, threads: int, slots: int, context_tokens: int) -> None:
        arguments = [str(number) for number in (threads, slots, context_tokens)]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__)), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(Path(__file__).parents[1])},
            text=True,
        )
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(2)]
        if not lines[1]:
            raise OSError("llama.cpp's server did not start")
        self.features, self._address = (line.strip() for line in lines)

    def __enter__(self) -> LlamaServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, ids: Sequence[int], new_tokens: int, *, slot: int, cached: bool = False) -> dict[str, Any]:
        """The timings of one answer; `cached` continues what the slot remembers of these ids."""
        body = {
            "prompt": list(ids),
            "n_predict": new_tokens,
            "id_slot": slot,
            "cache_prompt": cached,
            "ignore_eos": True,
            "temperature": 0.0,
        }
        request = urllib.request.Request(
            f"{self._address}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        begin = time.perf_counter()
        with urllib.request.urlopen(request, timeout=600) as answer:
            timings: dict[str, Any] = json.load(answer)["timings"]
        return timings | {"whole_ms": (time.perf_counter() - begin) * 1e3}

    def prefill_tokens_per_second(self, ids: Sequence[int], slot: int) -> float:
        """Of a prompt that nothing is cached of."""
        return float(self.ask(ids, 1, slot=slot)["prompt_per_second"])

    def decode_tokens_per_second(self, prompts: Sequence[Sequence[int]], new_tokens: int, first_slot: int) -> float:
        """Of all prompts together, each in its own slot and computed before: only decoding counts."""
        slots = range(first_slot, first_slot + len(prompts))
        for slot, ids in zip(slots, prompts, strict=True):
            self.ask(ids, 1, slot=slot, cached=True)

        def answer(slot: int, ids: Sequence[int]) -> float:
            return float(self.ask(ids, new_tokens, slot=slot, cached=True)["predicted_per_second"])

        with ThreadPoolExecutor(len(prompts)) as pool:
            return sum(pool.map(answer, slots, prompts))

    def first_token_seconds(self, ids: Sequence[int], slot: int, *, cached: bool) -> float:
        """From the request to the answer of one token."""
        return float(self.ask(ids, 1, slot=slot, cached=cached)["whole_ms"]) / 1e3


def serve(threads: int, slots: int, context_tokens: int) -> None:
    """Serve until standard input ends."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(find_smollm2())
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_ctx, parameters.n_parallel, parameters.n_batch = slots * context_tokens, slots, 2048
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    parameters.warmup = True
    server = xllamacpp.Server(parameters)
    print(xllamacpp.get_system_info().strip(), flush=True)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:4]))
