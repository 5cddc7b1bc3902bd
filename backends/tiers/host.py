"""The host tier: evicted blocks in this process's memory, bounded, the least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from backends.tiers.entry import Named
from backends.tiers.interface import FetchState
from backends.tiers.tier import HOST_MEDIUM, KeptBlock, Payload, TierCounters, TierNews, TierStats


class HostTier:
    """At most `limit_bytes` of K/V, by name. Engine thread only; loads give the kept bytes themselves."""

    name = "host"

    def __init__(self, limit_bytes: int, news: TierNews) -> None:
        self.counters = TierCounters()
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._news = news
        self._blocks: OrderedDict[bytes, KeptBlock] = OrderedDict()
        self._dropped: list[KeptBlock] = []

    def lookup(self, name: bytes) -> FetchState:
        """HIT or MISS."""
        return FetchState.HIT if name in self._blocks else FetchState.MISS

    def holds(self, name: bytes) -> bool:
        """Whether it is here."""
        return name in self._blocks

    def load(self, blocks: Sequence[Named]) -> Iterator[Payload]:
        """The first blocks that are here; they count as used."""
        for block in blocks:
            kept = self._blocks.get(block.name)
            if kept is None or kept.block.key.tokens != block.key.tokens:
                return
            self.touch(block.name)
            self.counters.loads += 1
            self.counters.load_bytes += len(kept.payload)
            yield kept.payload

    def store(self, block: Named, payload: Payload) -> None:
        """Keep it; what had to go for it is in `take_dropped`. A block over the whole limit is dropped at once."""
        if block.name in self._blocks:
            self.touch(block.name)
            return
        self._blocks[block.name] = KeptBlock(block, payload)
        self.used_bytes += len(payload)
        self.counters.stores += 1
        self.counters.store_bytes += len(payload)
        self._news.stored(block.key, HOST_MEDIUM)
        while self.used_bytes > self._limit_bytes:
            self._drop(self._blocks.popitem(last=False)[1])

    def _drop(self, kept: KeptBlock) -> None:
        self.used_bytes -= len(kept.payload)
        self.counters.evicted += 1
        self._dropped.append(kept)
        self._news.removed(kept.block.key, HOST_MEDIUM)

    def take_dropped(self) -> list[KeptBlock]:
        """What was dropped since last time, for the tiers below."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def touch(self, name: bytes) -> None:
        """It is the last one to go now."""
        self._blocks.move_to_end(name)

    def reset(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        self._dropped.clear()
        self.used_bytes = 0
        self._news.cleared(HOST_MEDIUM)

    def stats(self) -> TierStats:
        """Now."""
        counters = replace(self.counters)
        return TierStats(self.name, HOST_MEDIUM, len(self._blocks), self.used_bytes, self._limit_bytes, counters)

    def check_integrity(self) -> None:
        """AssertionError when the bytes are miscounted or over the limit."""
        held = sum(len(kept.payload) for kept in self._blocks.values())
        if held != self.used_bytes or held > self._limit_bytes:
            raise AssertionError(f"the host tier holds {held} bytes, counted {self.used_bytes} of {self._limit_bytes}")
