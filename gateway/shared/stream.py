"""What this replica says and hears on the stream of news: batches out, entries in, and how much of it is kept.

The stream is bounded in bytes by a bound in entries that follows their mean size. An epoch of the chain book ends
when a third of that has been heard, so that the two epochs which references go back to can always be read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.metrics import Metrics
from gateway.shared.agreement import new_replica
from gateway.shared.chain_book import ChainBook
from gateway.shared.link import Entry, id_seconds
from gateway.shared.outbox import Outbox, Parcel
from gateway.shared.peers import Heard, KnownWorker, Peers
from gateway.shared.wire import MOST_EPOCH, Batch, Ended, NotOurs, Placed, pack, sequence_of, unpack
from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED
from router.router import Router

BOOK_MARKS: Final = 250_000
"""Of each half of the chain book: two million blocks; the stream's bound comes first unless it was raised far."""

EPOCH_SECONDS: Final = 600.0
EXPIRE_SECONDS: Final = 3600
"""A stream that no replica tends any more is gone after this."""

LATE_SECONDS: Final = 1800.0
"""A joiner reads this far back, if the stream does."""

LEAST_ENTRIES, MOST_ENTRIES = 1_000, 1_000_000
ENTRY_OVERHEAD_BYTES: Final = 48
"""What an entry takes in Redis beyond its value, about."""

_WORK_SECONDS: Final = 0.001
_CLOCK_SECONDS: Final = 1.0
_DEAF_SECONDS: Final = 5.0
_SMOOTHING: Final = 0.02
_FLUSHED_SHARE: Final = 0.5


class _Said(NamedTuple):
    """A batch of ours on its way through Redis, and when it was made."""

    at: float
    value: bytes
    batch: Batch


class Stream:
    """One replica's view of the stream. `clock` gives monotonic seconds; `seal` authenticates batches."""

    def __init__(
        self,
        outbox: Outbox,
        metrics: Metrics,
        *,
        seal: bytes,
        stream_bytes: int,
        digest_of: Callable[[str], bytes | None],
        router_of: Callable[[bytes], Router | None],
        worker_of: Callable[[bytes], KnownWorker | None],
        clock: Callable[[], float],
    ) -> None:
        self.replica = new_replica()
        self.after = b"0-0"
        self.expire_seconds = EXPIRE_SECONDS
        self._outbox = outbox
        self._metrics = metrics
        self._seal = seal
        self._stream_bytes = stream_bytes
        self._digest_of = digest_of
        self._clock = clock
        self._book = ChainBook(BOOK_MARKS)
        self._peers = Peers(self.replica, self._book, metrics, router_of, worker_of)
        self._sequence = 0
        self._redis_ahead_seconds = 0.0
        self._late_until = 0.0
        self._entry_bytes = 1024.0
        self._epoch_bytes = 0
        self._epoch_began = clock()
        self._entries = 0
        self._flushed = False
        self._said: dict[int, _Said] = {}
        self._at_it_since = 0.0

    # What is said

    @property
    def keep_entries(self) -> int:
        """How many entries the stream should keep."""
        return round(min(MOST_ENTRIES, max(LEAST_ENTRIES, self._stream_bytes / self._entry_bytes)))

    def parcel(self) -> Parcel:
        """The news that the next batch carries."""
        return self._outbox.take(self._book, self._digest_of)

    def batch(self, parcel: Parcel) -> bytes:
        """The value that carries a parcel; it turns to a new epoch when this one is old."""
        return self._pack(Batch(self.replica, self._sequence + 1, self._next_epoch(), parcel.items, parcel.afresh))

    def sent(self, parcel: Parcel, value: bytes) -> None:
        """A batch was taken by Redis."""
        self._metrics.news_bytes_total.labels("out").inc(len(value))
        placed = sum(isinstance(item, Placed) for item in parcel.items)
        ended = sum(isinstance(item, Ended) for item in parcel.items)
        started = len(parcel.items) - placed - ended
        for kind, count in ((NEWS_PLACED, placed), (NEWS_FIRST_TOKEN, started), (NEWS_ENDED, ended)):
            self._metrics.news_published_total.labels(kind).inc(count)

    def goodbye(self) -> bytes:
        """The last batch: forget this replica's requests."""
        return self._pack(Batch(self.replica, self._sequence + 1, self._book.epoch, (), leaving=True))

    def has_entries(self, count: int) -> None:
        """Take in how long the stream is; one that is suddenly short was flushed, and nobody can read it again."""
        if count < self._entries * _FLUSHED_SHARE:
            self._flushed = True
        self._entries = count

    # What is heard

    @property
    def others(self) -> int:
        """How many other replicas there are."""
        return len(self._peers)

    def set_clock(self, redis_seconds: float) -> None:
        """Redis' clock reads so many epoch seconds now; how old an entry is, is told by it alone."""
        self._redis_ahead_seconds = redis_seconds - self._clock()
        self._late_until = redis_seconds
        self._said.clear()
        # An id from the future is of another Redis, or of a clock that was set back: nothing would ever come after it.
        if not redis_seconds - LATE_SECONDS <= id_seconds(self.after) <= redis_seconds + _CLOCK_SECONDS:
            self.after = b"%d-0" % round((redis_seconds - LATE_SECONDS) * 1e3)

    def deaf(self) -> bool:
        """Whether nothing that this replica said has come back for long, though Redis took it."""
        return bool(self._said) and self._clock() - next(iter(self._said.values())).at > _DEAF_SECONDS

    def start_over(self) -> None:
        """Read from as far back as a joiner does."""
        self.after = b"0-0"

    def pass_over(self) -> None:
        """Read on from the present: what comes next cannot be read."""
        self.after = b"%d-0" % round((self._clock() + self._redis_ahead_seconds) * 1e3)

    def caught_up(self) -> bool:
        """Whether what was there when catching up began has been read."""
        return id_seconds(self.after) >= self._late_until

    def hear(self, entry: Entry, *, late: bool) -> None:
        """Apply one entry; `late` when catching up. What is not a batch of this fleet's is counted and passed over."""
        self.after = entry.id
        self._at_it_since = self._at_it_since or time.perf_counter()
        now, value = self._clock(), entry.value or b""
        try:
            batch = self._read(value)
        except NotOurs as error:
            self._metrics.news_ignored_total.labels(error.reason).inc()
            return
        self._measure(batch, len(value), now)
        age = max(0.0, now + self._redis_ahead_seconds - entry.at) if late else 0.0
        others = len(self._peers)
        self._peers.hear(batch, Heard(entry.at, age), now)
        if len(self._peers) != others:
            self._metrics.replicas_heard.labels().set(len(self._peers))

    def long_at_it(self) -> bool:
        """Whether the event loop has waited for this long enough."""
        if time.perf_counter() - self._at_it_since < _WORK_SECONDS:
            return False
        self._at_it_since = 0.0
        return True

    def sweep(self) -> None:
        """Forget silent replicas."""
        self._peers.sweep(self._clock())
        self._metrics.replicas_heard.labels().set(len(self._peers))
        dropped, self._outbox.dropped = self._outbox.dropped, 0
        self._metrics.news_dropped_total.labels().inc(dropped)

    def check_integrity(self) -> None:
        """Raise AssertionError when what is kept is unsound."""
        self._peers.check_integrity()

    def _pack(self, batch: Batch) -> bytes:
        self._sequence += 1
        value = pack(batch, self._seal)
        self._said[self._sequence] = _Said(self._clock(), value, batch)
        return value

    def _read(self, value: bytes) -> Batch:
        """What a value says; our own, which comes back as it was, need not be read again."""
        sequence = sequence_of(value, self.replica)
        said = self._said.get(sequence) if sequence is not None else None
        return said.batch if said is not None and said.value == value else unpack(value, self._seal)

    def _next_epoch(self) -> int:
        book = self._book
        old = self._clock() - self._epoch_began > EPOCH_SECONDS and len(book) > 0
        due = self._flushed or book.full or old or self._epoch_bytes > self._stream_bytes / 3
        return min(MOST_EPOCH, book.epoch + due)

    def _measure(self, batch: Batch, value_bytes: int, now: float) -> None:
        size = value_bytes + ENTRY_OVERHEAD_BYTES
        self._entry_bytes += _SMOOTHING * (size - self._entry_bytes)
        self._epoch_bytes += size
        self._metrics.news_bytes_total.labels("in").inc(value_bytes)
        if batch.epoch > self._book.epoch:
            self._epoch_bytes, self._epoch_began, self._flushed = 0, now, False
        if batch.replica == self.replica:
            self._came_back(batch.sequence, now)

    def _came_back(self, sequence: int, now: float) -> None:
        said = self._said.get(sequence)
        if said is not None:
            self._metrics.news_lag_seconds.labels().observe(now - said.at)
        # What was said before and has not come back was lost: the stream keeps its order.
        while self._said and next(iter(self._said)) <= sequence:
            del self._said[next(iter(self._said))]
