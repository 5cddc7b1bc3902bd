"""What waiting sequences ask of the tiers: start early, look again each step, take what came, never wait for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from backends.hashing import BlockKey
from backends.prefix_cache import PrefixCache
from backends.sequence import Sequence
from backends.tiers.interface import MISS, Fetched, FetchState, NoOffload, Offload
from backends.types import Runner

logger = logging.getLogger("homing.worker")

PREFETCHED_SEQUENCES = 4
"""So many of the first in the queue have their blocks brought while they wait."""

MOST_DEFERRED = 64
"""So many are looked after in each step; the next one holds up the queue."""

MOST_STARTS = 3
"""What a fetch follows may be evicted while it is under way, and it starts anew; after so many it is given up."""


class _Asked(NamedTuple):
    """The blocks asked for, the first of them by its place in the sequence, and how often another was the first."""

    keys: list[BlockKey]
    first_block: int | None
    starts: int


NOTHING_ASKED = _Asked([], None, 0)


class Fetches:
    """Who asked the tiers for what. Nothing is held in the pool for a fetch before it is admitted with its result."""

    def __init__(self, cache: PrefixCache, runner: Runner | None = None, offload: Offload | None = None) -> None:
        self._cache = cache
        self._runner = runner
        self._offload = offload or NoOffload()
        self.active = self._offload.brings and cache.enabled
        self._asked: dict[Sequence, _Asked] = {}
        self._deferred: dict[Sequence, None] = {}

    def ask(self, sequence: Sequence, hit_blocks: int) -> Fetched:
        """How it stands with the blocks after the first `hit_blocks`; the first call starts bringing them."""
        if not self.active or not sequence.reads_cache:
            return MISS
        keys = sequence.block_keys[hit_blocks : self._cache.findable_blocks(sequence)]
        before = self._asked.get(sequence, NOTHING_ASKED)
        starts = before.starts + (before.first_block != hit_blocks)
        self._asked[sequence] = _Asked(keys, hit_blocks, starts)
        if not keys or starts > MOST_STARTS:
            return MISS
        return self._offload.fetch(sequence.request_id, keys)

    @property
    def may_defer(self) -> bool:
        """Whether one more can be looked after."""
        return len(self._deferred) < MOST_DEFERRED

    def defer(self, sequence: Sequence) -> None:
        """Its turn came before its blocks did; `arrived` will tell."""
        self._deferred[sequence] = None

    def arrived(self) -> list[Sequence]:
        """The deferred ones whose fetch has come to an end, whatever that is; they are deferred no more."""
        if not self._deferred:
            return []
        ended = [one for one in self._deferred if self._state(one) is not FetchState.PENDING]
        for sequence in ended:
            del self._deferred[sequence]
        return ended

    def _state(self, sequence: Sequence) -> FetchState:
        return self._offload.fetch(sequence.request_id, self._asked[sequence].keys).state

    def prefetch(self, waiting: Iterable[Sequence]) -> None:
        """Start for the first of these, in their order, once each."""
        if self.active:
            for sequence in islice(waiting, PREFETCHED_SEQUENCES):
                if sequence.reads_cache and sequence not in self._asked:
                    self.ask(sequence, len(self._cache.lookup(sequence)))

    def take(self, sequence: Sequence, fetched: Fetched) -> int:
        """Write what came into the blocks after a just admitted sequence's hits; return how many blocks that were.

        A payload that does not fit is no payload: those blocks are computed.
        """
        hits = sequence.found_blocks
        self._offload.seen(sequence.block_keys[:hits])
        if not self.active:
            return 0
        restored = self._write(sequence.block_ids[hits : hits + len(fetched.payloads)], fetched)
        if restored:
            self._cache.restored(sequence, restored)
        if sequence.asks_first and sequence.reads_cache:
            tokens = self._cache.hasher.block_tokens
            queries = len(sequence.token_ids) - hits * tokens
            self._cache.statistics.record_external(queries, restored * tokens, fetched.source)
        self.forget(sequence)
        return restored

    def _write(self, block_ids: list[int], fetched: Fetched) -> int:
        if not block_ids or self._runner is None:
            return 0
        try:
            self._runner.write_blocks(block_ids, fetched.payloads[: len(block_ids)])
        except ValueError:
            logger.warning("The tier %s gave blocks that do not fit; they are computed instead", fetched.source)
            return 0
        return len(block_ids)

    def forget(self, sequence: Sequence) -> None:
        """A sequence waits no more; it need not have asked for anything."""
        if sequence in self._asked:
            del self._asked[sequence]
            self._offload.forget(sequence.request_id)
            self._deferred.pop(sequence, None)

    @property
    def known(self) -> list[Sequence]:
        """All who asked and were not forgotten; for tests and integrity checks."""
        return list(self._asked)
