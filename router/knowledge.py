"""What stands in for belief at a worker that tells of its cache: its events, and the requests they do not show yet.

A request's chain counts as held from its placement on, since whoever comes after it queues behind it. It counts so
until the events show its last block; from then on they alone decide. A request that has ended and is never shown
(an answer of a worker that has fallen silent, a prompt the worker reads otherwise) is let go after a while and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from router.cache_events import CacheEvent
from router.known_blocks import BOUND_BLOCKS, KnownBlocks
from router.pending_chains import PendingChains

SHOWN_WITHIN_SECONDS = 5.0
"""So long after a request's end its blocks may still be on their way."""


class _Ended(NamedTuple):
    request_id: str
    chain: Sequence[bytes]
    ended_at: float


class Holds(Protocol):
    """Whatever says how much of a prompt a worker holds."""

    def match(self, chain: Sequence[bytes]) -> int:
        """Length in routing blocks of the longest prefix of `chain` that is held."""
        ...


class Either:
    """What is known for sure, or else what is believed beyond it: the longer of two prefixes."""

    __slots__ = ("_belief", "_knowledge")

    def __init__(self, knowledge: Holds, belief: Holds) -> None:
        self._knowledge = knowledge
        self._belief = belief

    def match(self, chain: Sequence[bytes]) -> int:
        """The longer match."""
        return max(self._knowledge.match(chain), self._belief.match(chain))


class Knowledge:
    """One worker's caches (one for each data-parallel rank) and what is on its way to them.

    `trusted` says whether placement goes by this alone; whoever follows the events decides. `sound` says that at least
    what is in here is held, though there may be more that was never heard of. `shown` counts requests whose
    blocks the events have shown, `not_shown` those that were prefilled, ended, and were let go without. A worker of
    several ranks is taken to hold what any of them holds, for it alone chooses the rank.
    """

    def __init__(
        self,
        model: str,
        block_tokens: int,
        *,
        bound_blocks: int = BOUND_BLOCKS,
        shown_within_seconds: float = SHOWN_WITHIN_SECONDS,
    ) -> None:
        self.block_tokens = block_tokens
        self.trusted = self.sound = False
        self.shown = self.not_shown = 0
        self._model, self._bound_blocks = model, bound_blocks
        self._shown_within_seconds = shown_within_seconds
        self._pending = PendingChains()
        self._chains: dict[str, Sequence[bytes]] = {}
        self._by_last: dict[bytes, set[str]] = {}
        self._ended: deque[_Ended] = deque()
        self._caches: dict[int, KnownBlocks] = {}
        self._first = self._cache(0)
        self._others: Sequence[KnownBlocks] = ()

    def __len__(self) -> int:
        """How many of the worker's blocks are known to be held."""
        return sum(map(len, self._caches.values()))

    @property
    def caches(self) -> Sequence[KnownBlocks]:
        """What each rank is known to hold."""
        return tuple(self._caches.values())

    @property
    def pending(self) -> int:
        """Requests that the events have not shown yet."""
        return len(self._chains)

    def match(self, chain: Sequence[bytes]) -> int:
        """Length in routing blocks of the longest prefix of `chain` that is held, or will be by its turn."""
        held = self._held(chain) if self._others else self._first.match(chain)
        if self._chains and held < len(chain):
            return max(held, self._pending.match(chain))
        return held

    def told(self, chain: Sequence[bytes]) -> int:
        """`match` without what is only on its way."""
        return self._held(chain)

    def apply(self, events: Sequence[CacheEvent], rank: int = 0) -> None:
        """Carry out a batch that this rank told."""
        cache = self._cache(rank)
        cache.apply(events)
        if cache.arrived:
            for last in cache.arrived:
                self._show(last)
            cache.arrived.clear()

    def clear(self, rank: int = 0) -> None:
        """Forget what this rank holds; what is on its way stays."""
        self._cache(rank).clear()

    # Requests

    def sent(self, request_id: str, chain: Sequence[bytes]) -> None:
        """A request was placed here."""
        self._drop(request_id)
        if self._held(chain) < len(chain):
            self._chains[request_id] = chain
            self._pending.add(chain)
            self._by_last.setdefault(chain[-1], set()).add(request_id)

    def left(self, request_id: str, now: float, *, prefilled: bool) -> None:
        """It ended, however; one that may have been prefilled is waited for a while."""
        self.expire(now)
        if not prefilled:
            self._drop(request_id)
        elif (chain := self._chains.get(request_id)) is not None:
            self._ended.append(_Ended(request_id, chain, now))

    def expire(self, now: float) -> None:
        """Let go of requests that ended too long ago."""
        while self._ended and now - self._ended[0].ended_at > self._shown_within_seconds:
            ended = self._ended.popleft()
            if self._chains.get(ended.request_id) is ended.chain:  # else it was shown, or sent again
                self._drop(ended.request_id)
                self.not_shown += 1

    def check_integrity(self) -> None:
        """Raise AssertionError unless the parts are sound and agree on what is pending."""
        self._pending.check_integrity()
        for cache in self._caches.values():
            cache.check_integrity()
        waiting = {request_id for ids in self._by_last.values() for request_id in ids}
        if waiting != self._chains.keys() or len(self._pending) != len(self._chains):
            raise AssertionError("the pending requests disagree")

    def _held(self, chain: Sequence[bytes]) -> int:
        held = self._first.match(chain)
        for cache in self._others:
            held = max(held, cache.match(chain))
        return held

    def _cache(self, rank: int) -> KnownBlocks:
        cache = self._caches.get(rank)
        if cache is None:
            cache = self._caches[rank] = KnownBlocks(self._model, self.block_tokens, self._bound_blocks)
            cache.awaited = self._by_last
            self._others = tuple(self._caches.values())[1:]
        return cache

    def _show(self, last: bytes) -> None:
        for request_id in tuple(self._by_last.get(last, ())):
            self.shown += self._drop(request_id)

    def _drop(self, request_id: str) -> bool:
        chain = self._chains.pop(request_id, None)
        if chain is None:
            return False
        self._pending.remove(chain)
        ids = self._by_last[chain[-1]]
        ids.discard(request_id)
        if not ids:
            del self._by_last[chain[-1]]
        return True
