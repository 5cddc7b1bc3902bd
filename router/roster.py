"""Who belongs to the fleet: the ring over its members, and the router's state of each of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from router.core import FleetView, WorkerView
from router.rates import settle_rates
from router.ring import Ring
from router.worker_state import WorkerState

_RINGS_KEPT = 8
"""A worker that flaps brings back a ring that was built before."""


_LASTING = attrgetter(
    "name", "weight", "draining", "ready", "cache_blocks", "prefill_tokens_per_second", "prefill_fixed_seconds"
)
"""What a roster depends on; everything else of a view changes from request to request."""


class Roster(NamedTuple):
    """One fleet view, ready for placing: names, views and states by index, the index of each name, the ring.

    `serving` is how many workers share the load: ready and not draining, at least 1.
    """

    names: Sequence[str]
    views: Sequence[WorkerView]
    states: Sequence[WorkerState]
    position: Mapping[str, int]
    ring: Ring
    serving: int


class Members:
    """Worker states by name, and the rings over those who may be a home.

    Workers that are not ready stay on the ring (their keys must not move for a failed probe); draining ones leave it.
    """

    def __init__(self, points_per_worker: int) -> None:
        self.states: dict[str, WorkerState] = {}
        self._absent_since: dict[str, float] = {}
        self._points = points_per_worker
        self._rings: OrderedDict[frozenset[tuple[str, int]], Ring] = OrderedDict()
        self._stale = True
        self._roster = Roster((), (), (), {}, Ring({}), 1)

    @property
    def roster(self) -> Roster:
        """The latest fleet that was asked about."""
        return self._roster

    def roster_of(self, fleet: FleetView) -> Roster:
        """`fleet` with its states and its ring; built again only where more than counts has changed."""
        if self._stale or fleet.workers is not self._roster.views:
            if self._stale or not _alike(self._roster.views, fleet.workers):
                self._roster, self._stale = self._build(fleet), False
            else:
                self._roster = self._roster._replace(views=fleet.workers)
        return self._roster

    def state(self, worker: str) -> WorkerState:
        """The state of `worker`, a new one if it is unknown."""
        state = self.states.get(worker)
        if state is None:
            state = self.states[worker] = WorkerState(worker)
        return state

    def settle_rates(self) -> None:
        """Some worker's rates were learned anew: let the fleet take over what its members have in common."""
        settle_rates([state.rates for state in self.states.values()])

    def forget(self, worker: str) -> None:
        """Drop everything known of `worker`."""
        self.states.pop(worker, None)
        self._absent_since.pop(worker, None)
        self._stale = True

    def long_absent(self, now: float, seconds: float) -> list[str]:
        """Workers that have not been in a view for more than `seconds`."""
        for name in self.states.keys() - self._roster.position.keys():
            self._absent_since.setdefault(name, now)
        return [name for name, since in self._absent_since.items() if now - since > seconds]

    def _build(self, fleet: FleetView) -> Roster:
        views = fleet.workers
        position = {view.name: index for index, view in enumerate(views)}
        if len(position) != len(views):
            raise ValueError("two workers of one fleet have the same name; give each its own")
        states = [self.state(view.name) for view in views]
        for view, state in zip(views, states, strict=True):
            if state.configure(view):
                self.settle_rates()
        if self._absent_since:
            for name in position:
                self._absent_since.pop(name, None)
        serving = sum([view.ready and not view.draining for view in views])
        return Roster(tuple(position), views, states, position, self._ring(views), max(1, serving))

    def _ring(self, views: Sequence[WorkerView]) -> Ring:
        members = frozenset([(view.name, view.weight) for view in views if not view.draining])
        ring = self._rings.get(members)
        if ring is None:
            ring = self._rings[members] = Ring(dict(members), self._points)
            if len(self._rings) > _RINGS_KEPT:
                self._rings.popitem(last=False)
        return ring


def _alike(old: Sequence[WorkerView], new: Sequence[WorkerView]) -> bool:
    """Whether two views name the same workers in the same order with the same lasting facts."""
    if len(old) != len(new):
        return False
    # A gateway keeps the views of workers at which nothing happened: most pairs are one object.
    return all(_LASTING(one) == _LASTING(other) for one, other in zip(old, new, strict=True) if one is not other)
