"""Who runs next: continuous batching with chunked prefill, and preemption by recompute when blocks run out."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from backends.prefix_cache import PrefixCache
from backends.sequence import Sequence
from backends.types import Batch, EngineConfig, ScheduledSequence


class Plan(NamedTuple):
    """One step: the batch for the runner, the same sequences for ourselves, and how many were preempted for it."""

    batch: Batch
    sequences: list[Sequence]
    preempted: int


class Scheduler:
    """First come, first served. Each step hands out `max_batched_tokens`, first to running sequences, then to waiting.

    The first of the running ones is never preempted for another, and a request that could not run alone is never
    accepted, so something always gets on.
    """

    def __init__(self, config: EngineConfig, cache: PrefixCache) -> None:
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self._cache = cache
        self._config = config

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.append(sequence)

    def drop(self, sequence: Sequence) -> None:
        """Forget a sequence that ended, wherever it is; what it has cached stays."""
        if sequence.block_ids:
            self.running.remove(sequence)
            self._cache.release(sequence)
        else:
            self.waiting.remove(sequence)

    def schedule(self, now: float) -> Plan:
        """Choose the next step's work and give it blocks. Empty only when there is nothing to do."""
        plan: list[ScheduledSequence] = []
        budget_tokens, preempted = self._continue_running(plan)
        if not preempted:
            self._admit_waiting(plan, budget_tokens, now)
        return Plan(Batch(plan), self.running[: len(plan)], preempted)

    def commit(self, plan: Plan) -> None:
        """Note that the step was computed: only now may others find its blocks."""
        commit, block_tokens = self._cache.commit, self._config.block_tokens
        for item, sequence in zip(plan.batch.items, plan.sequences, strict=True):
            sequence.computed_tokens = item.start_token + item.token_count
            if sequence.computed_tokens // block_tokens > sequence.registered_blocks:
                commit(sequence)

    def _continue_running(self, plan: list[ScheduledSequence]) -> tuple[int, int]:
        """Schedule running sequences, oldest first; return the tokens left over and the number of preempted."""
        running, budget_tokens, preempted = self.running, self._config.max_batched_tokens, 0
        for sequence in running.copy():
            start, known = sequence.computed_tokens, len(sequence.token_ids)
            end = min(known, start + budget_tokens)
            if end == start or len(plan) == len(running):
                break  # no tokens left, or all who come now were preempted
            preempted += self._make_room(sequence, end)
            if len(plan) == len(running):
                break  # it was the last, and preempted itself
            plan.append(ScheduledSequence(sequence, start, end - start, end == known))
            budget_tokens -= end - start
        return budget_tokens, preempted

    def _make_room(self, sequence: Sequence, end_token: int) -> int:
        """Grow a block table, preempting from the end, the sequence itself last of all; return how many fell.

        Victims come after the sequence, so they are not in this step's plan and have no budget to give back.
        """
        preempted = 0
        while sequence.block_ids and not self._cache.grow(sequence, end_token):
            self._preempt(self.running.pop())
            preempted += 1
        return preempted

    def _preempt(self, victim: Sequence) -> None:
        """Take its blocks away; its tokens stay, and most of its blocks will be found again in the cache."""
        self._cache.release(victim)
        victim.preemptions += 1
        self.waiting.appendleft(victim)

    def _admit_waiting(self, plan: list[ScheduledSequence], budget_tokens: int, now: float) -> None:
        while self.waiting and budget_tokens > 0 and len(self.running) < self._config.max_sequences:
            sequence = self.waiting[0]
            known = len(sequence.token_ids)
            hits = self._cache.lookup(sequence)
            start = len(hits) * self._config.block_tokens
            end = min(known, start + budget_tokens)
            spare = self._config.watermark_blocks if self.running else 0
            if not self._cache.admit(sequence, hits, end, spare_blocks=spare):
                break
            self.running.append(self.waiting.popleft())
            if sequence.times.first_scheduled is None:
                sequence.times.first_scheduled = now
            plan.append(ScheduledSequence(sequence, start, end - start, end == known))
            budget_tokens -= end - start
