"""The other replicas as this one hears them: their news goes to the routers, and who falls silent is forgotten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.metrics import Metrics
from gateway.shared.chain_book import ChainBook
from gateway.shared.wire import Batch, Placed, Started
from router.core import NEWS_ENDED, NEWS_FIRST_TOKEN, NEWS_PLACED, News
from router.router import Router

SILENT_SECONDS: Final = 5.0
"""A replica that says nothing for so long, though it sends a sign of life each second, has no requests any more."""

_OLD_SECONDS: Final = 1.0
"""News that is older than this may be of a worker's process that has ended since."""

MOST_REPLICAS: Final = 1024
MOST_FLIGHTS: Final = 100_000
"""Of one replica."""


class KnownWorker(NamedTuple):
    """A worker of the fleet; `started_at` (epoch seconds) is when its process began, where it says so."""

    name: str
    started_at: float | None


class Heard(NamedTuple):
    """When a batch reached Redis: epoch seconds by its clock, and how long ago that is (0 unless catching up)."""

    at: float
    age_seconds: float


class _Flight(NamedTuple):
    router: Router
    worker: str
    request_id: str


@dataclass(slots=True)
class _Replica:
    name: str
    sequence: int
    last_heard: float
    flights: dict[int, _Flight] = field(default_factory=dict)


class Peers:
    """Applies batches in the order of the stream.

    `router_of` and `worker_of` find what a digest stands for, None where this replica has no such thing.
    """

    def __init__(
        self,
        own: bytes,
        book: ChainBook,
        metrics: Metrics,
        router_of: Callable[[bytes], Router | None],
        worker_of: Callable[[bytes], KnownWorker | None],
    ) -> None:
        self._own = own
        self._book = book
        self._metrics = metrics
        self._router_of = router_of
        self._worker_of = worker_of
        self._replicas: dict[bytes, _Replica] = {}

    def __len__(self) -> int:
        """How many other replicas there are."""
        return len(self._replicas)

    def hear(self, batch: Batch, heard: Heard, now: float) -> None:
        """Apply a batch at `now` (monotonic seconds). Of our own only the blocks matter: they are in the stream now."""
        self._book.turn(batch.epoch)
        if batch.replica == self._own:
            for item in batch.items:
                if isinstance(item, Placed):
                    self._book.hear(item.known, item.blocks)
            return
        replica = self._replica(batch, now - heard.age_seconds)
        if replica is None:
            self._ignore("repeated")
            return
        applied = Counter[str]()
        for item in batch.items:
            if type(item) is Placed:
                applied[NEWS_PLACED] += self._placed(replica, item, heard, now)
            elif type(item) is Started:
                applied[NEWS_FIRST_TOKEN] += _tell(
                    replica.flights.get(item.number), NEWS_FIRST_TOKEN, now - heard.age_seconds
                )
            else:
                applied[NEWS_ENDED] += _tell(
                    replica.flights.pop(item.number, None), NEWS_ENDED, now - heard.age_seconds
                )
        for kind, count in applied.items():
            self._metrics.news_heard_total.labels(kind).inc(count)
        if batch.leaving:
            self._forget(replica, now)
            del self._replicas[batch.replica]

    def sweep(self, now: float) -> None:
        """Forget the requests of replicas that have fallen silent."""
        for mark, replica in list(self._replicas.items()):
            if now - replica.last_heard > SILENT_SECONDS:
                self._forget(replica, now)
                del self._replicas[mark]

    def check_integrity(self) -> None:
        """Raise AssertionError when the book is unsound."""
        self._book.check_integrity()

    def _replica(self, batch: Batch, when: float) -> _Replica | None:
        """The sender's record, its flights forgotten where news of it is missing; None for a batch out of its turn."""
        replica = self._replicas.get(batch.replica)
        if replica is None:
            if len(self._replicas) >= MOST_REPLICAS:
                return None
            replica = self._replicas[batch.replica] = _Replica(batch.replica.hex(), batch.sequence, when)
            return replica
        if batch.sequence <= replica.sequence:
            return None
        if batch.afresh or batch.sequence != replica.sequence + 1:
            self._forget(replica, when)
        replica.sequence = batch.sequence
        replica.last_heard = max(replica.last_heard, when)
        return replica

    def _placed(self, replica: _Replica, item: Placed, heard: Heard, now: float) -> bool:
        """Apply a placement; False for one of a model or a worker that is not known here."""
        chain = self._book.hear(item.known, item.blocks)
        router, worker = self._router_of(item.model), self._worker_of(item.worker)
        if router is None or worker is None:
            self._ignore("model" if router is None else "worker")
            return False
        if chain is None:
            self._metrics.news_unresolved_total.labels().inc()
            chain = []
        if _before_start(worker, heard, item.age_seconds):
            chain = []
        request_id = f"{replica.name}-{item.number}"
        if len(replica.flights) < MOST_FLIGHTS:
            replica.flights[item.number] = _Flight(router, worker.name, request_id)
        when = now - heard.age_seconds - item.age_seconds
        tokens, seconds = item.prompt_tokens, item.prefill_seconds
        router.heard(News(NEWS_PLACED, request_id, worker.name, chain, seconds, tokens, item.silent), when)
        return True

    def _forget(self, replica: _Replica, now: float) -> None:
        for flight in replica.flights.values():
            _tell(flight, NEWS_ENDED, now)
        replica.flights.clear()

    def _ignore(self, reason: str) -> None:
        self._metrics.news_ignored_total.labels(reason).inc()


def _before_start(worker: KnownWorker, heard: Heard, age_seconds: float) -> bool:
    """Whether the worker's present process began after this was placed: what it had cached is gone."""
    old = heard.age_seconds + age_seconds > _OLD_SECONDS
    return old and worker.started_at is not None and heard.at - age_seconds < worker.started_at


def _tell(flight: _Flight | None, kind: str, when: float) -> bool:
    if flight is not None:
        flight.router.heard(News(kind, flight.request_id, flight.worker, (), 0.0), when)
    return flight is not None
