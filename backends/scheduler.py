"""Who runs next: continuous batching with chunked prefill, and preemption by recompute when blocks run out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import NamedTuple

from backends.draft import Draft
from backends.engine_config import EngineConfig
from backends.fetching import Fetches
from backends.fork import Forks, make_family
from backends.in_flight import InFlight
from backends.intake import Intake
from backends.prefix_cache import PrefixCache
from backends.sequence import Sequence
from backends.types import Batch
from backends.victims import Victims
from backends.waiting import Waiting


class Plan(NamedTuple):
    """One step: the batch for the runner, the same sequences for ourselves, and how many were preempted for it."""

    batch: Batch
    sequences: list[Sequence]
    preempted: int


class Scheduler:
    """Each step hands out `max_batched_tokens`, first to running sequences, then to waiting ones in their order.

    Nobody is preempted for one that comes after it, and a request that could not run alone is never accepted, so
    something always gets on.
    """

    def __init__(self, config: EngineConfig, cache: PrefixCache, fetches: Fetches | None = None) -> None:
        self.running: list[Sequence] = []
        self.waiting = Waiting()
        self.forks = Forks(cache, config.block_tokens)
        self._cache = cache
        self._config = config
        self._numbers = count()
        self._in_flight = InFlight()
        self._fetches = fetches or Fetches(cache)
        self._intake = Intake(config, cache, self.waiting, self._in_flight, self._fetches)
        self._victims = Victims(config, cache.pool)
        self._chunk_tokens = config.long_prefill_token_threshold or config.max_batched_tokens

    def add(self, siblings: list[Sequence]) -> None:
        """Queue the answers to one prompt: the first computes it, the others wait to fork from it."""
        for sequence in siblings:
            by_priority = self._config.scheduling_policy == "priority"
            sequence.rank = (sequence.request.priority if by_priority else 0, next(self._numbers))
        self.waiting.add(siblings[0])
        for child in siblings[1:]:
            self.waiting.add_deferred(child)
        make_family(siblings)
        self._fetches.prefetch(self.waiting.ready)

    def drop(self, sequence: Sequence) -> None:
        """Forget a sequence that ended, wherever it is; what it has cached stays."""
        if sequence.block_ids:
            self.running.remove(sequence)
            self._stop(sequence)
        else:
            self.waiting.remove(sequence)
            self._fetches.forget(sequence)
            self._in_flight.unfollow(sequence)
        if sequence.parent is not None:
            sequence.parent.children.remove(sequence)
        if sequence.children:
            self.waiting.wake(sequence.children[0])
            make_family(sequence.children)

    def schedule(self, now: float) -> Plan:
        """Choose the next step's work and give it blocks. Empty only when all who wait have blocks on their way."""
        self._cache.tick(now)
        self._wake(self._fetches.arrived())
        draft = Draft(self._config.max_batched_tokens, self._chunk_tokens)
        self._continue_running(draft)
        if not draft.preempted:
            self._intake.admit(self.running, draft, now)
        self._fetches.prefetch(self.waiting.ready)
        return Plan(Batch(draft.items, self.forks.copies), draft.sequences, draft.preempted)

    def commit(self, plan: Plan) -> None:
        """Note that the step was computed: only now may others find its blocks, or fork from it."""
        self.forks.carried_out()
        cache, block_tokens = self._cache, self._config.block_tokens
        for item, sequence in zip(plan.batch.items, plan.sequences, strict=True):
            computed = sequence.computed_tokens = item.start_token + item.token_count
            if computed // block_tokens > sequence.registered_blocks:
                cache.commit(sequence)
                self._wake(self._in_flight.advanced(sequence, block_tokens))
            if sequence.children and computed >= sequence.prompt_tokens:
                self._fork(sequence)

    def _wake(self, sequences: Iterable[Sequence]) -> None:
        for sequence in sequences:
            self.waiting.wake(sequence)

    def _fork(self, parent: Sequence) -> None:
        """Let its siblings run beside it; for whom there is no room, it is an ordinary wait."""
        for child in parent.children:
            child.parent = None
            room = len(self.running) < self._config.max_sequences
            if room and self.forks.start(parent, child, spare_blocks=self._config.watermark_blocks):
                self.waiting.remove(child)
                child.times.first_scheduled = parent.times.first_scheduled
                self.running.append(child)
            else:
                self.waiting.wake(child)
        parent.children = []

    def _continue_running(self, draft: Draft) -> None:
        """Schedule running sequences in their order, as far as tokens and blocks go."""
        block_tokens = self._config.block_tokens
        for sequence in self.running.copy():
            if draft.budget_tokens <= 0:
                break
            if not sequence.block_ids:
                continue  # preempted for one before it
            start, known = sequence.computed_tokens, len(sequence.token_ids)
            end = known if known - start == 1 else draft.end_of(start, known)
            if end > len(sequence.block_ids) * block_tokens:
                self._make_room(sequence, end, draft)
                if not sequence.block_ids:
                    continue
            draft.add(sequence, start, end)

    def _make_room(self, sequence: Sequence, end_token: int, draft: Draft) -> None:
        """Grow a block table: from what is free, from what was taken ahead, then by preemption, itself last of all."""
        while sequence.block_ids and not self._cache.grow(sequence, end_token):
            if not self._cache.give_back_ahead(self.running):
                self._preempt(self._victims.choose(self.running, sequence), draft)

    def _preempt(self, victim: Sequence, draft: Draft) -> None:
        """Take its blocks away; its tokens stay, and most of its blocks will be found again in the cache."""
        draft.drop(victim)
        self.running.remove(victim)
        self._stop(victim)
        victim.preemptions += 1
        self.waiting.add(victim)

    def preempt_all(self) -> int:
        """Take everybody's blocks away; they come back in their order. How many that were."""
        draft = Draft(0, 0)
        for victim in self.running.copy():
            self._preempt(victim, draft)
        return draft.preempted

    def _stop(self, sequence: Sequence) -> None:
        """A sequence runs no more: its blocks are free, and whoever followed it goes on alone."""
        self.forks.forget(sequence)
        self._cache.release(sequence)
        self._wake(self._in_flight.stopped(sequence))

    def check_integrity(self) -> None:
        """Raise AssertionError on any broken invariant of pool, tables or queues."""
        tables = [sequence.block_ids for sequence in self.running]
        self._cache.pool.check_integrity([*tables, self.forks.held_blocks])
        for fault in self._faults():
            raise AssertionError(fault)
        for sequence in (*self.running, *self.waiting):
            self._cache.check_integrity(sequence)

    def _faults(self) -> Iterable[str]:
        yield from self._in_flight.faults()
        waiting = set(self.waiting)
        if any(sequence.block_ids for sequence in waiting) or not all(one.block_ids for one in self.running):
            yield "a sequence waits with blocks, or runs without"
        for sequence in (*self.running, *waiting):
            if any(child.parent is not sequence or child not in waiting for child in sequence.children):
                yield f"{sequence.request_id} has a child that does not wait for it"
        if not waiting.issuperset(self._fetches.known):
            yield "a fetch is under way for a sequence that does not wait"
