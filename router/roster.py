"""Who belongs to the fleet: the ring over its members, and the router's state of each of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from router.core import FleetView, WorkerView
from router.directory import Directory
from router.rates import settle_rates
from router.ring import Ring, lay_out
from router.worker_state import WorkerState

_RINGS_KEPT = 8
"""A worker that flaps brings back a ring that was built before."""

_POINTS_KEPT = 512
"""Workers whose points are remembered, about 12 KB each, so that a ring is put together and not computed."""

_RELEASED_BLOCKS = 4096
"""So many of a forgotten worker's blocks are freed with each placement: 0.2 ms."""

_LASTING = attrgetter(
    "name", "weight", "draining", "ready", "joined", "cache_blocks", "prefill_tokens_per_second",
    "prefill_fixed_seconds",
)  # fmt: skip
"""What a roster depends on; everything else of a view changes from request to request."""


class Roster(NamedTuple):
    """One fleet view, ready for placing: names, views and states by index, the index of each name, the ring.

    `serving` is how many workers share the load: ready and not draining, at least 1. `least_own_seconds` is what a
    prefill takes at the least: of a prompt that the fastest of them holds. `speeds` are fixed seconds and seconds for a
    token of each one's prefill.
    """

    names: Sequence[str]
    views: Sequence[WorkerView]
    states: Sequence[WorkerState]
    position: Mapping[str, int]
    ring: Ring
    serving: int
    least_own_seconds: float
    speeds: Sequence[tuple[float, float]]


class Members:
    """Worker states by name, and the rings over those who may be a home.

    Workers that are not ready stay on the ring (their keys must not move for a failed probe); draining ones leave it,
    and those that were never ready are not on it yet. What changes within `gather_seconds` makes one ring, until which
    the old one serves: it may name workers that have left, and they are passed over.
    """

    def __init__(self, points_per_worker: int, gather_seconds: float = 0.0) -> None:
        self.states: dict[str, WorkerState] = {}
        self._gather_seconds = gather_seconds
        self._ring_due_at = inf
        self._let_go: list[Directory] = []
        self._laid_out: OrderedDict[tuple[str, int], Sequence[int]] = OrderedDict()
        self._absent_since: dict[str, float] = {}
        self._points = points_per_worker
        self._rings: OrderedDict[frozenset[tuple[str, int]], Ring] = OrderedDict()
        self._stale = True
        self._roster = Roster((), (), (), {}, Ring({}), 1, 0.0, ())

    @property
    def roster(self) -> Roster:
        """The latest fleet that was asked about."""
        return self._roster

    def roster_of(self, fleet: FleetView, now: float = inf) -> Roster:
        """`fleet` with its states and its ring at `now`; built again only where more than counts has changed."""
        if self._let_go:
            self._release()
        if now >= self._ring_due_at:
            self._stale = True
        if self._stale or fleet.workers is not self._roster.views:
            if self._stale or not _alike(self._roster.views, fleet.workers):
                self._roster, self._stale = self._build(fleet, now), False
            else:
                self._roster = self._roster._replace(views=fleet.workers)
        return self._roster

    def state(self, worker: str) -> WorkerState:
        """The state of `worker`, a new one if it is unknown."""
        states = self.states
        return states[worker] if worker in states else states.setdefault(worker, WorkerState(worker))

    def expect(self, worker: str, weight: int) -> None:
        """Lay out the points of a worker that will join: 0.2 ms now, so that 64 of them need not stand still then."""
        self._points_of(worker, weight, self._points)

    def settle_rates(self) -> float:
        """Some worker's rates were learned anew: let the fleet take over what its members have in common.

        Returns how many times as long as before a prefill is now predicted to take.
        """
        factor = settle_rates([state.rates for state in self.states.values()])
        speeds = _speeds(self._roster.states)
        self._roster = self._roster._replace(least_own_seconds=_least_own_seconds(speeds), speeds=speeds)
        return factor

    def forget(self, worker: str) -> None:
        """Drop everything known of `worker`."""
        state = self.states.pop(worker, None)
        if state is not None:
            self._let_go.append(state.directory)
        self._absent_since.pop(worker, None)
        self._stale = True

    def long_absent(self, now: float, seconds: float) -> list[str]:
        """Workers that have not been in a view for more than `seconds`."""
        for name in self.states.keys() - self._roster.position.keys():
            self._absent_since.setdefault(name, now)
        return [name for name, since in self._absent_since.items() if now - since > seconds]

    def _build(self, fleet: FleetView, now: float) -> Roster:
        views = fleet.workers
        position = {view.name: index for index, view in enumerate(views)}
        if len(position) != len(views):
            raise ValueError("two workers of one fleet have the same name; give each its own")
        states = [self.state(view.name) for view in views]
        # Every one is configured, whatever the one before answered.
        if [state for view, state in zip(views, states, strict=True) if state.configure(view)]:
            self.settle_rates()
        if self._absent_since:
            for name in position:
                self._absent_since.pop(name, None)
        serving = sum([view.ready and not view.draining for view in views])
        ring, speeds = self._ring(views, now), _speeds(states)
        least = _least_own_seconds(speeds)
        return Roster(tuple(position), views, states, position, ring, max(1, serving), least, speeds)

    def _ring(self, views: Sequence[WorkerView], now: float) -> Ring:
        members = frozenset([(view.name, view.weight) for view in views if view.joined and not view.draining])
        ring = self._rings.get(members)
        if ring is None and len(self._roster.ring) and self._gathering(now):
            return self._roster.ring
        self._ring_due_at = inf
        if ring is None:
            ring = self._rings[members] = Ring(dict(members), self._points, self._points_of)
            if len(self._rings) > _RINGS_KEPT:
                self._rings.popitem(last=False)
        return ring

    def _gathering(self, now: float) -> bool:
        """Whether more changes may come before the next ring; the first of them sets the time."""
        if self._ring_due_at == inf:
            self._ring_due_at = now + self._gather_seconds
        return now < self._ring_due_at

    def _release(self) -> None:
        """Free some of what is no longer believed: 64 workers that leave at once would take a third of a second."""
        directory = self._let_go[-1]
        directory.resize(max(0, len(directory) - _RELEASED_BLOCKS))
        if not len(directory):
            self._let_go.pop()

    def _points_of(self, worker: str, weight: int, points: int) -> Sequence[int]:
        laid = self._laid_out.get((worker, weight))
        if laid is None:
            laid = self._laid_out[worker, weight] = lay_out(worker, weight, points)
            if len(self._laid_out) > _POINTS_KEPT:
                self._laid_out.popitem(last=False)
        return laid


def _speeds(states: Sequence[WorkerState]) -> Sequence[tuple[float, float]]:
    return [(state.rates.fixed_seconds, state.rates.seconds_per_token) for state in states]


def _least_own_seconds(speeds: Sequence[tuple[float, float]]) -> float:
    """A prefill of one token, at the fastest worker."""
    return min([fixed_seconds + per_token for fixed_seconds, per_token in speeds], default=0.0)


def _alike(old: Sequence[WorkerView], new: Sequence[WorkerView]) -> bool:
    """Whether two views name the same workers in the same order with the same lasting facts."""
    if len(old) != len(new):
        return False
    # A gateway keeps the views of workers at which nothing happened: most pairs are one object.
    return all(_LASTING(one) == _LASTING(other) for one, other in zip(old, new, strict=True) if one is not other)
