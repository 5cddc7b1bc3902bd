"""What a tier is: a place behind the pool that keeps blocks by name; what it counts; who hears what it keeps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from backends.hashing import BlockKey
from backends.tiers.entry import Named
from backends.tiers.interface import FetchState

Payload = bytes | memoryview

HOST_MEDIUM = "CPU"
STORAGE_MEDIUM = "STORAGE"
"""What vLLM's events call the place of a block."""


class KeptBlock(NamedTuple):
    """A block with its K/V."""

    block: Named
    payload: Payload


class KvTier(Protocol):
    """One place that keeps blocks. A miss is the worst that can happen: no method raises for a fault of the place.

    `lookup`, `holds` and `touch` are for the engine's thread and quick. The others may wait for a device: a tier whose
    `lookup` says PENDING has one thread for `load` and one for `store` and `reset`.
    """

    @property
    def name(self) -> str:
        """What metrics call it."""

    @property
    def counters(self) -> TierCounters:
        """What it did; `queries`, `hits` and `skipped_stores` are counted by whoever asks it."""

    def lookup(self, name: bytes) -> FetchState:
        """HIT: `load` gives it without waiting. PENDING: `load` may give it, after waiting. MISS: it is not here."""

    def holds(self, name: bytes) -> bool:
        """Whether storing it would be for nothing, as far as this tier knows."""

    def load(self, blocks: Sequence[Named]) -> Iterator[Payload]:
        """The K/V of the first blocks, verified, in order, up to the first that is not here or not whole."""

    def store(self, block: Named, payload: Payload) -> None:
        """Keep a block, dropping those not used for longest."""

    def touch(self, name: bytes) -> None:
        """It was used."""

    def reset(self) -> None:
        """Forget everything."""

    def stats(self) -> TierStats:
        """How full it is and what it did."""


@dataclass(slots=True)
class TierCounters:
    """Since start. Each field is written by one thread only: by the engine's, by the tier's reader, or by its writer.

    `queries` and `hits` count blocks asked for and blocks given to requests. A store is skipped where it would hold
    up somebody (the queue is full, the tier is resting after failures), and failed where the place refused it.
    """

    queries: int = 0
    hits: int = 0
    skipped_stores: int = 0

    loads: int = 0
    load_bytes: int = 0
    load_seconds: float = 0.0
    broken: int = 0
    failed_loads: int = 0

    stores: int = 0
    store_bytes: int = 0
    store_seconds: float = 0.0
    failed_stores: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class TierStats:
    """One tier now: `limit_bytes` None where the tier does not know its bound, `blocks` and `used_bytes` 0 then."""

    name: str
    medium: str
    blocks: int
    used_bytes: int
    limit_bytes: int | None
    counters: TierCounters

    @property
    def usage(self) -> float:
        """0..1."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


class TierJournal(Protocol):
    """Who hears what the tiers keep; called in the engine's thread: after a step, or when none comes, soon."""

    def stored(self, key: BlockKey, medium: str) -> None:
        """The block can be loaded from `medium`, "CPU" or "STORAGE"."""

    def removed(self, key: BlockKey, medium: str) -> None:
        """It no longer can."""

    def cleared(self, medium: str) -> None:
        """Everything in `medium` was forgotten at once; no `removed` comes for it."""


class NoTierJournal:
    """Tells nobody."""

    def stored(self, key: BlockKey, medium: str) -> None:
        """Nothing."""

    def removed(self, key: BlockKey, medium: str) -> None:
        """Nothing."""

    def cleared(self, medium: str) -> None:
        """Nothing."""


class TierNews:
    """Carries what tiers tell, from whatever thread, to the engine's."""

    def __init__(self) -> None:
        self._news: deque[Callable[[TierJournal], None]] = deque()
        self._call: Callable[[], None] | None = None
        self._called = False

    def call(self, call: Callable[[], None]) -> None:
        """Have `call` called for the first news after each `tell`, by whoever brings them; now if there are some."""
        self._call = call
        if self._news:
            self._called = True
            call()

    def stored(self, key: BlockKey, medium: str) -> None:
        """See `TierJournal`."""
        self._add(lambda journal: journal.stored(key, medium))

    def removed(self, key: BlockKey, medium: str) -> None:
        """See `TierJournal`."""
        self._add(lambda journal: journal.removed(key, medium))

    def cleared(self, medium: str) -> None:
        """See `TierJournal`."""
        self._add(lambda journal: journal.cleared(medium))

    def _add(self, news: Callable[[TierJournal], None]) -> None:
        self._news.append(news)
        if self._call is not None and not self._called:
            self._called = True
            self._call()

    def tell(self, journal: TierJournal) -> None:
        """Pass on what has come in, in order. Engine thread."""
        self._called = False  # before looking: what comes from now on calls, once too often rather than never
        while self._news:
            self._news.popleft()(journal)
