"""This worker as bench/worker.py measures it: batches straight on the runner, first tokens through the engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.runner import TorchRunner
from backends.types import Batch, GenerationRequest, SamplingParams, ScheduledSequence

BLOCK_TOKENS = 16
STEP_TOKENS = 512
GREEDY = SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True)


@dataclass
class Written:
    """A sequence as the runner sees it."""

    token_ids: Sequence[int]
    block_ids: Sequence[int]
    sampling: SamplingParams = GREEDY
    prompt_tokens: int = 0
    request_id: str = "bench"
    end_ids: frozenset[int] = frozenset()


class Ours:
    """A runner with an engine on top; `tables` name each sequence's blocks for batches that go past the engine."""

    def __init__(self, runner: TorchRunner, num_blocks: int) -> None:
        self._runner = runner
        config = EngineConfig(num_blocks, runner.context_tokens, BLOCK_TOKENS, max_batched_tokens=STEP_TOKENS)
        self._engine = Engine(config, runner, None, time.perf_counter)
        self._asked = 0

    def run(self, ids: Sequence[Sequence[int]], start: int, tables: Sequence[Sequence[int]]) -> None:
        """Compute the tokens after `start` of each sequence in one batch, and the next one."""
        written = [Written(tokens, table, prompt_tokens=len(tokens)) for tokens, table in zip(ids, tables, strict=True)]
        items = [ScheduledSequence(each, start, len(each.token_ids) - start, True) for each in written]
        self._runner.execute(Batch(items))

    def prefill(self, ids: Sequence[int], table: Sequence[int]) -> None:
        """A whole prompt, in the steps that the worker would take."""
        for end in range(STEP_TOKENS, len(ids) + STEP_TOKENS, STEP_TOKENS):
            self.run([ids[:end]], end - STEP_TOKENS, [table])

    def first_token_seconds(self, ids: Sequence[int], *, cached: bool) -> float:
        """From the request to its first token, through the engine; earlier prompts are remembered if `cached`."""
        if not cached:
            self._engine.reset_prefix_cache()
        self._asked += 1
        begin = time.perf_counter()
        self._engine.add(GenerationRequest(f"{self._asked}", ids, GREEDY))
        while self._engine.has_work:
            self._engine.step()
        return time.perf_counter() - begin
