"""A tier that makes one wait, with the threads that do the waiting: one loads, one stores, the engine does neither."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from backends.tiers.entry import Named
from backends.tiers.interface import FetchState
from backends.tiers.lane import Lane
from backends.tiers.rates import Rates, Transfer, Worth
from backends.tiers.tier import KeptBlock, KvTier, Payload

QUEUE_BYTES = 256 << 20
"""Most K/V that may wait to be written to one tier; what comes on top is dropped, never waited for."""

CLOSE_SECONDS = 5.0


class Load:
    """A block on its way in: the reader sets `payload` (None: did not come), then `done`; the engine counts `users`."""

    __slots__ = ("block", "done", "payload", "tier", "users")

    def __init__(self, block: Named, tier: SlowTier) -> None:
        self.block = block
        self.tier = tier
        self.payload: Payload | None = None
        self.done = False
        self.users = 0


class SlowTier:
    """Engine thread, but for what the two lanes run. `progress` is called whenever a load is done."""

    def __init__(
        self,
        tier: KvTier,
        rates: Rates,
        clock: Callable[[], float],
        progress: Callable[[], None],
        *,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.tier = tier
        self.transfer = Transfer()
        self.worth = Worth(rates, self.transfer, clock)
        self._clock = clock
        self._progress = progress
        self._queue_bytes = queue_bytes
        self._reader, self._writer = Lane(f"{tier.name} reader"), Lane(f"{tier.name} writer")
        self._queued: dict[bytes, KeptBlock] = {}
        self._queued_bytes = 0
        self._resets = 0
        self._lock = threading.Lock()

    @property
    def queued_bytes(self) -> int:
        """K/V that wait to be written."""
        return self._queued_bytes

    def lookup(self, name: bytes) -> FetchState:
        """See `KvTier.lookup`; HIT for what waits to be written, which `queued` gives."""
        if name in self._queued:
            return FetchState.HIT
        return FetchState.MISS if self._resets else self.tier.lookup(name)

    def queued(self, name: bytes) -> Payload | None:
        """What waits to be written is as good as in the host's memory."""
        kept = self._queued.get(name)
        return None if kept is None else kept.payload

    def bring(self, loads: Sequence[Load]) -> None:
        """Have blocks of one chain loaded, in order."""
        ordered = self._clock()
        self._reader.put(lambda: self._bring(loads, ordered))

    def _bring(self, loads: Sequence[Load], ordered: float) -> None:
        begin, size_bytes = self._clock(), 0
        self.transfer.waited(begin - ordered)
        try:
            payloads = self.tier.load([load.block for load in loads])
            for index, load in enumerate(loads):
                if not any(rest.users for rest in loads[index:]):
                    return  # everybody who wanted them is gone
                load.payload = next(payloads, None)
                if load.payload is None:
                    return
                size_bytes += len(load.payload)
                load.done = True
                self._progress()
        finally:
            for load in loads:
                load.done = True
            self._progress()
            seconds = self._clock() - begin
            self.tier.counters.load_seconds += seconds
            if size_bytes:
                self.transfer.brought(size_bytes, seconds)

    def wants(self, name: bytes) -> bool:
        """Whether to read a block for this tier's sake; a full queue is counted as a skipped store."""
        if name in self._queued or (not self._resets and self.tier.holds(name)):
            return False
        if self._queued_bytes >= self._queue_bytes:
            self.tier.counters.skipped_stores += 1
            return False
        return True

    def offer(self, kept: KeptBlock) -> None:
        """Have a block stored, if the tier wants it."""
        name = kept.block.name
        if not self.wants(name):
            return
        with self._lock:
            self._queued_bytes += len(kept.payload)
        self._queued[name] = kept
        self._writer.put(lambda: self._write(kept))

    def _write(self, kept: KeptBlock) -> None:
        name, begin = kept.block.name, self._clock()
        try:
            if self._queued.get(name) is kept:  # else a reset came in between
                self.tier.store(kept.block, kept.payload)
        finally:
            if self._queued.get(name) is kept:
                self._queued.pop(name, None)
            with self._lock:
                self._queued_bytes -= len(kept.payload)
            self.tier.counters.store_seconds += self._clock() - begin

    def reset(self) -> None:
        """Forget everything, also what waits to be written. Nothing is found until the writer has come to it."""
        self._queued.clear()
        with self._lock:
            self._resets += 1
        self._writer.put(self._reset)

    def _reset(self) -> None:
        try:
            self.tier.reset()
        finally:
            with self._lock:
                self._resets -= 1

    def close(self) -> None:
        """Let the writer finish, for a few seconds."""
        self._writer.close(CLOSE_SECONDS)
        self._reader.close(0.0)
