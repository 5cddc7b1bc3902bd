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

MOST_PUT_OFF = 32
"""So many find in one step that they have to wait for blocks: a burst of equal prompts, all of them looked up at once
and told to wait for the first, would hold everybody up for seconds.
"""


class Intake:
    """Admits in order. Who waits for blocks of somebody else is passed over; who does not fit holds up others."""

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
        waiting, config, line = self._waiting, self._config, PartitionLine(self._cache.pool)
        put_off = 0
        while put_off < MOST_PUT_OFF and draft.budget_tokens > 0 and len(running) < config.max_sequences:
            sequence = waiting.first(line.held_up)
            if sequence is None:
                break
            if not line.passes(sequence, config.block_tokens):
                continue
            fits = self._try(sequence, running, draft)
            if fits:
                waiting.remove(sequence)
                if sequence.times.first_scheduled is None:
                    sequence.times.first_scheduled = now
                running.append(sequence)
            elif fits is None:
                put_off += 1
            else:
                line.is_too_long_for(sequence)

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
        spare = self._config.watermark_blocks if self._has_rivals(sequence, running) else 0
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
        """Take back what was only taken ahead; where nobody's end would help, also what somebody only wants to keep."""
        if self._cache.give_back_ahead(running):
            return True
        if self._has_rivals(sequence, running):
            return False
        pool, partition = self._cache.pool, sequence.partition
        before = pool.available(partition)
        pool.release_pins(partition)
        return pool.available(partition) > before

    def _has_rivals(self, sequence: Sequence, running: list[Sequence]) -> bool:
        """Whether somebody runs whose end would make room for a sequence."""
        if not running or not self._config.partitions.shares:
            return bool(running)
        in_the_way = self._cache.pool.in_the_way(sequence.partition)
        return any(one.partition in in_the_way for one in running)
