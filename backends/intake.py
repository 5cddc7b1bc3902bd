"""How a waiting sequence comes to run: what is cached or on its way, what must be computed, whether it fits."""

from __future__ import annotations

from backends.draft import Draft
from backends.engine_config import EngineConfig
from backends.fetching import Fetches
from backends.in_flight import InFlight
from backends.partition_line import PartitionLine
from backends.prefix_cache import PrefixCache
from backends.sequence import Sequence
from backends.tiers.interface import Fetched, FetchState
from backends.waiting import Waiting


class Intake:
    """Admits in order. Who waits for blocks of somebody else is passed over; who does not fit holds up the rest."""

    def __init__(
        self, config: EngineConfig, cache: PrefixCache, waiting: Waiting, in_flight: InFlight, fetches: Fetches
    ) -> None:
        self._config = config
        self._cache = cache
        self._waiting = waiting
        self._in_flight = in_flight
        self._fetches = fetches
        self._shares = config.share_in_flight and config.enable_prefix_caching

    def admit(self, running: list[Sequence], draft: Draft, now: float) -> None:
        """Let sequences in while there are tokens, places and blocks left."""
        ready, place = self._waiting.ready, 0
        line = self._line() if self._config.partitions.shares else None
        while place < len(ready) and draft.budget_tokens > 0 and len(running) < self._config.max_sequences:
            sequence = ready[place]
            if line is not None and line.passes_over(sequence):
                place += 1
                continue
            fits = self._try(sequence, running, draft)
            if fits is None:
                continue
            if fits:
                del ready[place]
                if sequence.times.first_scheduled is None:
                    sequence.times.first_scheduled = now
                running.append(sequence)
            elif line is None:
                break
            else:
                line.is_too_long_for(sequence, self._config.block_tokens)

    def _line(self) -> PartitionLine:
        return PartitionLine(self._cache.pool)

    def _try(self, sequence: Sequence, running: list[Sequence], draft: Draft) -> bool | None:
        """Whether a sequence was given its blocks; None when it waits for somebody else's first."""
        hits = self._cache.lookup(sequence)
        leader = self._leader(sequence, len(hits))
        if leader is not None:
            self._in_flight.follow(sequence, leader)
            self._waiting.defer(sequence)
            return None
        fetched = self._fetches.ask(sequence, len(hits))
        if fetched.state is FetchState.PENDING:
            if not self._fetches.may_defer:
                return False
            self._fetches.defer(sequence)
            self._waiting.defer(sequence)
            return None
        return self._take(sequence, hits, fetched, running, draft)

    def _leader(self, sequence: Sequence, hit_blocks: int) -> Sequence | None:
        if not self._shares:
            return None
        return self._in_flight.leader_of(sequence, hit_blocks, self._cache.findable_blocks(sequence))

    def _take(
        self, sequence: Sequence, hits: list[int], fetched: Fetched, running: list[Sequence], draft: Draft
    ) -> bool:
        known, block_tokens = len(sequence.token_ids), self._config.block_tokens
        start = (len(hits) + len(fetched.payloads)) * block_tokens
        end = draft.end_of(start, known)
        spare = self._config.watermark_blocks if running else 0
        while not self._cache.admit(sequence, hits, end, spare_blocks=spare):
            if not self._make_room(sequence, running):
                return False
        self._fetches.take(sequence, fetched)
        start = sequence.computed_tokens
        draft.add(sequence, start, min(end, draft.end_of(start, known)))
        if self._shares:
            self._in_flight.start(sequence)
        return True

    def _make_room(self, sequence: Sequence, running: list[Sequence]) -> bool:
        """Take back what was only taken ahead; beside nobody, also what somebody only wants to keep."""
        if running:
            return self._cache.give_back_ahead(running)
        pool = self._cache.pool
        before = pool.available(sequence.partition)
        pool.release_pins()
        return pool.available(sequence.partition) > before
