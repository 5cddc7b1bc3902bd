"""The tiers together: copies go down when the pool gives content up, and come back while a request waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum

from backends.hashing import BlockKey
from backends.tiers.entry import EntryFormat, Named, name_of, named
from backends.tiers.fetches import Fetches
from backends.tiers.host import HostTier
from backends.tiers.interface import MISS, Fetched
from backends.tiers.rates import Rates
from backends.tiers.sightings import Sightings
from backends.tiers.slow_tier import SlowTier
from backends.tiers.tier import KeptBlock, KvTier, NoTierJournal, TierJournal, TierNews, TierStats
from backends.types import Runner

STAGING_BYTES = 2 << 30
"""Most K/V that may lie loaded from disk or Redis for requests that still wait."""

SELECTED_HITS = 2


class WritePolicy(Enum):
    """When a block is copied: as soon as it is computed, when the pool gives it up, or then if it was hit twice."""

    WRITE_THROUGH = "write-through"
    WRITE_BACK = "write-back"
    SELECTIVE = "selective"


class TieredOffload:
    """An `Offload` and a `Journal`. Engine thread only, but for `stats`.

    With `write-through` every tier gets a copy when a block becomes findable. With every policy the host tier gets
    what it lacks when the pool gives it up, and the tiers below when the host tier does; without a host tier they get
    it from the pool.

    Blocks are read one at a time: that costs no more than many at once, since each is copied into memory of its own.
    """

    brings = True

    def __init__(
        self,
        runner: Runner,
        *,
        host: HostTier | None,
        open_slow: Callable[[EntryFormat], Sequence[KvTier]],
        policy: WritePolicy,
        block_tokens: int,
        clock: Callable[[], float],
        news: TierNews,
        journal: TierJournal | None = None,
        rates: Rates | None = None,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        self._rates = rates or Rates()
        self._runner = runner
        self._host = host
        self._open_slow = open_slow
        self._policy = policy
        self._block_tokens = block_tokens
        self._clock = clock
        self._news = news
        self._journal = journal or NoTierJournal()
        self._progress = threading.Event()
        self._slow: tuple[SlowTier, ...] = ()
        self._fetches = Fetches(host, staging_bytes=staging_bytes, rates=self._rates, clock=clock)
        self._sightings = Sightings()
        self._block_bytes = 1

    def start(self) -> None:
        """See `Offload.start`. OSError when the disk's folder cannot be had."""
        self._block_bytes = len(self._runner.read_blocks([0])[0])
        entries = EntryFormat(self._runner.kv_digest, self._block_tokens * 4, self._block_bytes)
        tiers = self._open_slow(entries)
        self._slow = tuple(SlowTier(tier, self._rates, self._clock, self._progress.set) for tier in tiers)

    def fetch(self, request_id: str, keys: Sequence[BlockKey]) -> Fetched:
        """See `Offload.fetch`."""
        if not keys:
            return MISS
        fetch = self._fetches.get(request_id)
        if fetch is not None and fetch.first != name_of(keys[0]):
            self._fetches.forget(request_id)
            fetch = None
        if fetch is None:
            fetch = self._fetches.begin(
                request_id, named(keys), self._slow, block_bytes=self._block_bytes, block_tokens=self._block_tokens
            )
            if fetch is None:
                return MISS
        return fetch.state()

    def forget(self, request_id: str) -> None:
        """See `Offload.forget`."""
        self._fetches.forget(request_id)

    def seen(self, keys: Sequence[BlockKey]) -> None:
        """See `Offload.seen`."""
        if self._policy is WritePolicy.SELECTIVE:
            for key in keys:
                self._sightings.hit(name_of(key))

    def stepped(self, computed_tokens: int, seconds: float) -> None:
        """See `Offload.stepped`."""
        self._rates.stepped(computed_tokens, seconds)
        self._tell()

    def tell_between_steps(self, order: Callable[[Callable[[], None]], None]) -> None:
        """Have news told when no step comes, too: `order` has something run in the engine's thread, from any thread."""
        self._news.call(lambda: order(self._tell))

    def _tell(self) -> None:
        self._news.tell(self._journal)

    def wait(self, timeout_seconds: float) -> None:
        """See `Offload.wait`."""
        self._progress.wait(timeout_seconds)
        self._progress.clear()

    def reset(self) -> None:
        """See `Offload.reset`."""
        self._fetches.reset()
        if self._host is not None:
            self._host.reset()
        for tier in self._slow:
            tier.reset()
        self._tell()

    def close(self) -> None:
        """See `Offload.close`."""
        for tier in self._slow:
            tier.close()

    def stored(self, key: BlockKey, block_id: int) -> None:
        """See `Journal.stored`."""
        if self._policy is WritePolicy.WRITE_THROUGH:
            self._copy(Named(key, name_of(key)), block_id, self._slow)
        elif self._policy is WritePolicy.SELECTIVE:
            self._sightings.computed(name_of(key))

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        """See `Journal.overwritten`."""
        block = Named(key, name_of(key))
        if self._policy is not WritePolicy.SELECTIVE or self._sightings.hits(block.name) >= SELECTED_HITS:
            self._copy(block, block_id, () if self._host else self._slow)

    def removed(self, key: BlockKey) -> None:
        """Nothing: what the tiers hold they hold without the pool."""

    def cleared(self) -> None:
        """Nothing: `reset` is another question than the pool's."""

    def _copy(self, block: Named, block_id: int, below: Sequence[SlowTier]) -> None:
        """Copy a block of the pool to the host tier and the tiers of `below`, as far as they lack it."""
        host = self._host
        if host is not None and host.holds(block.name):
            host.touch(block.name)
            host = None
        takers = [tier for tier in below if tier.wants(block.name)]
        if host is None and not takers:
            return
        kept = KeptBlock(block, self._runner.read_blocks([block_id])[0])
        for tier in takers:
            tier.offer(kept)
        if host is not None:
            host.store(block, kept.payload)
            for dropped in host.take_dropped():
                for tier in self._slow:
                    tier.offer(dropped)

    def stats(self) -> tuple[TierStats, ...]:
        """Each tier now, the fastest first. Any thread."""
        own = () if self._host is None else (self._host.stats(),)
        return own + tuple(tier.tier.stats() for tier in self._slow)

    def check_integrity(self) -> None:
        """AssertionError on any broken invariant of what the engine's thread holds."""
        self._fetches.check_integrity()
        if self._host is not None:
            self._host.check_integrity()
