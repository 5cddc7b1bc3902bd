"""The Redis tier: a key per block, shared by every worker of one model and config, with a time to live."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from backends.tiers.breaker import Breaker
from backends.tiers.entry import BrokenEntryError, EntryFormat, Named
from backends.tiers.interface import FetchState
from backends.tiers.tier import STORAGE_MEDIUM, Payload, TierCounters, TierStats

SOCKET_SECONDS = 0.25
"""How long one read from or write to the socket may stall. Only a reader's or writer's own thread waits for it."""

BLOCKS_AT_ONCE = 8
"""Asked for in one round trip: enough to hide the way, few enough that a miss does not cost many megabytes."""

REMEMBERED_STORES = 100_000

FAULTS = (RedisError, OSError, AttributeError, TypeError, ValueError)
"""The last three are what the client raises at answers that are RESP, but not to what was asked."""


class RedisTier:
    """Blocks under `prefix` + their name. What Redis holds is found out by asking, so every look-up is PENDING.

    A server that is down, frozen or answers nonsense is left alone for a while after one failure; nobody but the
    tier's own threads ever waits for it. Its answers are verified like files are. It bounds itself (`maxmemory`, and
    the time to live), so no event tells of what it holds.
    """

    name = "redis"

    def __init__(
        self, url: str, entries: EntryFormat, *, prefix: str, ttl_seconds: int, clock: Callable[[], float]
    ) -> None:
        """Connects at first use. ValueError for a URL that is none."""
        self.counters = TierCounters()
        self._client: Redis = Redis.from_url(
            url,
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=SOCKET_SECONDS,
            # The client's own retries would hold up a frozen server's victim for many times the timeout.
            retry=Retry(NoBackoff(), 0),
            decode_responses=False,
        )
        self._entries = entries
        self._prefix = prefix
        self._ttl_seconds = ttl_seconds
        self._breaker = Breaker(clock)
        self._stored: OrderedDict[bytes, None] = OrderedDict()

    def lookup(self, name: bytes) -> FetchState:  # noqa: ARG002 - only the server knows
        """PENDING, MISS while the server is left alone."""
        return FetchState.MISS if self._breaker.resting else FetchState.PENDING

    def holds(self, name: bytes) -> bool:
        """Whether this process stored it, or the server is left alone now."""
        return name in self._stored or self._breaker.resting

    def load(self, blocks: Sequence[Named]) -> Iterator[Payload]:
        """Ask for a few blocks at a time; they live longer again when they are there."""
        rest = iter(blocks)
        while not self._breaker.resting and (some := list(islice(rest, BLOCKS_AT_ONCE))):
            for block, entry in zip(some, self._ask(some), strict=False):
                payload = self._open(block, entry)
                if payload is None:
                    return
                yield payload

    def _ask(self, blocks: list[Named]) -> list[Any]:
        """Each block's entry, cut off at one byte more than it may have; nothing when the server failed."""
        pipeline = self._client.pipeline(transaction=False)
        for block in blocks:
            pipeline.getrange(self._key(block), 0, self._entries.entry_bytes)
            pipeline.expire(self._key(block), self._ttl_seconds)
        try:
            answers: list[Any] = pipeline.execute()[::2]
        except FAULTS:
            self.counters.failed_loads += 1
            self._breaker.failed()
            return []
        self._breaker.worked()
        return answers

    def _open(self, block: Named, entry: Any) -> Payload | None:
        if not entry or not isinstance(entry, bytes):
            self._stored.pop(block.name, None)
            return None
        try:
            payload = self._entries.open(block, entry)
        except BrokenEntryError:
            self.counters.broken += 1
            self._remove(block)
            return None
        self.counters.loads += 1
        self.counters.load_bytes += len(payload)
        return payload

    def _remove(self, block: Named) -> None:
        self._stored.pop(block.name, None)
        try:
            self._client.delete(self._key(block))
        except FAULTS:
            self._breaker.failed()

    def store(self, block: Named, payload: Payload) -> None:
        """Set the key; a failure is counted, and the server left alone for a while."""
        try:
            self._client.set(
                self._key(block), b"".join((self._entries.seal(block, payload), payload)), ex=self._ttl_seconds
            )
        except FAULTS:
            self.counters.failed_stores += 1
            self._breaker.failed()
            return
        self._breaker.worked()
        self._stored[block.name] = None
        if len(self._stored) > REMEMBERED_STORES:
            with suppress(KeyError):  # a reset came in between
                self._stored.popitem(last=False)
        self.counters.stores += 1
        self.counters.store_bytes += len(payload)

    def _key(self, block: Named) -> str:
        return self._prefix + block.name.hex()

    def touch(self, name: bytes) -> None:
        """Nothing: a load renews the time to live."""

    def reset(self) -> None:
        """Delete every block of this model and config, also other workers'."""
        self._stored.clear()
        try:
            for keys in _some_at_a_time(self._client.scan_iter(match=self._prefix + "*", count=1000), 500):
                self._client.unlink(*keys)
        except FAULTS:
            self._breaker.failed()

    def stats(self) -> TierStats:
        """What this worker did; the server knows how full it is."""
        return TierStats(self.name, STORAGE_MEDIUM, 0, 0, None, replace(self.counters))


def _some_at_a_time(keys: Iterator[Any], count: int) -> Iterator[list[Any]]:
    while some := list(islice(keys, count)):
        yield some
