"""Who is connected and whose time is up: heads that do not end, closes that do not, and who gives way over the cap.

Pure: the clock is an argument, and what is to be closed is told. Each kind of wait has one length, so the order in
which connections began to wait is the order in which their time is up.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice, takewhile
from typing import Final, Generic, NamedTuple, TypeVar

MOST_AT_ONCE: Final = 32
"""So many are closed in one go; a thousand that came together must not stall the others together."""

C = TypeVar("C", bound=Hashable)


class Bounds(NamedTuple):
    """How many connections there may be, and how long they may take; in seconds.

    `descriptors` are what connections and the requests under way on them (one more each, to a worker) may take
    together.
    """

    connections: int
    descriptors: int
    head_seconds: float
    write_seconds: float


class Overdue(NamedTuple, Generic[C]):
    """Connections whose head did not end in time, and such that were closed and still have bytes nobody takes."""

    heads: list[C]
    closes: list[C]


class Connections(Generic[C]):
    """The connections of one port: idle, in the middle of a head, at work, or on their way out."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._surely_fit = min(bounds.connections, bounds.descriptors // 2)
        """So many connections fit whatever they do."""
        self._all: set[C] = set()
        self._idle: dict[C, None] = {}
        self._heads: dict[C, float] = {}
        self._closes: dict[C, float] = {}

    @property
    def open(self) -> int:
        """Connections there are."""
        return len(self._all)

    @property
    def idle(self) -> int:
        """Those of them with no request under way."""
        return len(self._idle)

    def opened(self, connection: C, now: float) -> C | None:
        """A new one, which has its head to send; returns who has to give way to it, itself if nobody idles."""
        oldest = next(iter(self._idle), connection)
        self._all.add(connection)
        self._idle[connection] = None
        self._heads[connection] = now + self._bounds.head_seconds
        return oldest if self._too_many() else None

    def head_began(self, connection: C, now: float) -> None:
        """Bytes came, and no whole head yet; the first ones start its time."""
        self._heads.setdefault(connection, now + self._bounds.head_seconds)

    def asked(self, connection: C) -> C | None:
        """A whole head came; returns an idle connection that has to give way to what it takes to answer."""
        self._heads.pop(connection, None)
        self._idle.pop(connection, None)
        if len(self._all) < self._surely_fit:
            return None
        return next(iter(self._idle), None) if self._too_many() else None

    def rested(self, connection: C) -> None:
        """All its requests are answered."""
        if connection in self._all:
            self._idle[connection] = None

    def closing(self, connection: C, now: float) -> None:
        """It is closed, but for bytes that the other side has not taken yet."""
        if connection in self._all:
            self._leave_waits(connection)
            self._closes.setdefault(connection, now + self._bounds.write_seconds)

    def gone(self, connection: C) -> None:
        """It is no more."""
        self._all.discard(connection)
        self._leave_waits(connection)
        self._closes.pop(connection, None)

    def overdue(self, now: float) -> Overdue[C]:
        """Whose time is up, MOST_AT_ONCE of each kind at most; told once."""
        return Overdue(_expired(self._heads, now), _expired(self._closes, now))

    def next_deadline(self) -> float | None:
        """When somebody's time will be up, as it looks now."""
        return min((next(iter(waits.values())) for waits in (self._heads, self._closes) if waits), default=None)

    def check_integrity(self) -> None:
        """Raise AssertionError where somebody waits who is not connected."""
        if not self._all.issuperset((*self._idle, *self._heads, *self._closes)):
            raise AssertionError("a connection that is gone is still waited for")

    def _leave_waits(self, connection: C) -> None:
        self._idle.pop(connection, None)
        self._heads.pop(connection, None)

    def _too_many(self) -> bool:
        busy = len(self._all) - len(self._idle)
        return len(self._all) > self._bounds.connections or len(self._all) + busy > self._bounds.descriptors


def _expired(waits: dict[C, float], now: float) -> list[C]:
    some = islice(waits.items(), MOST_AT_ONCE)
    expired = [connection for connection, _ in takewhile(lambda wait: wait[1] <= now, some)]
    for connection in expired:
        del waits[connection]
    return expired
