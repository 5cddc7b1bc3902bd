"""The roster: rings and states are made anew only when the fleet is another one, not when its counts move."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median

import pytest

import router.roster
from router.core import FleetView
from router.ring import POINTS_PER_WORKER, Ring
from router.roster import Members
from tests.router.placement_builders import build_fleet


def build_members() -> Members:
    return Members(points_per_worker=16)


def with_first(fleet: FleetView, **changes: object) -> FleetView:
    """The fleet with its first worker changed."""
    return FleetView((replace(fleet.workers[0], **changes), *fleet.workers[1:]))


def test_counts_that_move_keep_the_ring_and_the_states() -> None:
    """In flight and waiting change with every request; the new views are seen all the same."""
    members, fleet = build_members(), build_fleet(3)
    before = members.roster_of(fleet)
    after = members.roster_of(with_first(fleet, in_flight=7, waiting=3))
    assert (after.ring, after.states, after.position) == (before.ring, before.states, before.position)
    assert after.ring is before.ring
    assert after.views[0].in_flight == 7


@pytest.mark.parametrize(
    ("changes", "ring_workers", "serving"),
    [({"draining": True}, 2, 2), ({"ready": False}, 3, 2), ({"weight": 0}, 2, 3), ({"name": "other"}, 3, 3),
     ({"ready": False, "joined": False}, 2, 2)],
)  # fmt: skip
def test_what_lasts_is_taken_over(changes: dict[str, object], ring_workers: int, serving: int) -> None:
    """Draining leaves the ring; not ready stays on it, for a failed probe must not move keys; G-06: but it must have
    been ready once."""
    members, fleet = build_members(), build_fleet(3)
    members.roster_of(fleet)
    roster = members.roster_of(with_first(fleet, **changes))
    assert (len(roster.ring), roster.serving) == (ring_workers, serving)


def test_a_new_size_or_rate_reaches_the_state() -> None:
    """What a worker says of itself later counts as well."""
    members, fleet = build_members(), build_fleet(2)
    members.roster_of(fleet)
    members.roster_of(with_first(fleet, cache_blocks=77, prefill_tokens_per_second=100.0))
    assert members.state("worker-0").directory.bound_blocks == 77
    assert members.state("worker-0").rates.seconds_per_token == pytest.approx(0.01)


def test_a_worker_that_flaps_brings_its_old_ring_back() -> None:
    """Building a ring takes milliseconds: the latest few are kept, and no more than those."""
    members, fleet = build_members(), build_fleet(3)
    first = members.roster_of(fleet).ring
    assert members.roster_of(with_first(fleet, draining=True)).ring is not first
    assert members.roster_of(fleet).ring is first
    for size in range(4, 20):
        members.roster_of(build_fleet(size))
    assert len(members._rings) <= 8
    assert members.roster_of(fleet).ring is not first


def test_a_forgotten_worker_that_is_still_there_starts_afresh() -> None:
    """Its state is a new one, also for a view that has not changed."""
    members, fleet = build_members(), build_fleet(2)
    old = members.roster_of(fleet).states[0]
    members.forget("worker-0")
    assert members.roster_of(fleet).states[0] is not old
    assert members.roster_of(fleet).states[0] is members.state("worker-0")


def test_an_empty_fleet_is_a_fleet() -> None:
    """Nobody there: an empty ring, and no division by nobody."""
    roster = build_members().roster_of(FleetView(()))
    assert (len(roster.ring), roster.serving, roster.position) == (0, 1, {})


def count_rings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the rings that are built from now on."""
    built: list[int] = []

    def build(weights: Mapping[str, int], *rest: object) -> Ring:
        built.append(len(weights))
        return Ring(weights, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(router.roster, "Ring", build)
    return built


def test_a_burst_of_changes_builds_one_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty joiners within the time to gather, a placement between any two: one ring, when the time is over."""
    members = Members(points_per_worker=16, gather_seconds=0.2)
    members.roster_of(build_fleet(8), now=100.0)
    built = count_rings(monkeypatch)
    for joined in range(50):
        roster = members.roster_of(build_fleet(9 + joined), now=200.0 + joined * 0.003)
        assert (len(roster.views), len(roster.ring)) == (9 + joined, 8)
    assert built == []
    assert len(members.roster_of(build_fleet(58), now=200.2).ring) == 58
    assert built == [58]


def test_the_ring_follows_although_nothing_else_changes() -> None:
    """The same view again, after the time: the ring is the new one."""
    members = Members(points_per_worker=16, gather_seconds=0.2)
    members.roster_of(build_fleet(2), now=0.0)
    fleet = build_fleet(3)
    assert len(members.roster_of(fleet, now=1.0).ring) == 2
    assert len(members.roster_of(fleet, now=1.1).ring) == 2
    assert len(members.roster_of(fleet, now=1.3).ring) == 3


def test_later_changes_are_gathered_as_the_first_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each burst by itself; between them nothing is built."""
    members, built = Members(points_per_worker=16, gather_seconds=0.2), count_rings(monkeypatch)
    members.roster_of(build_fleet(1), now=0.0)
    for burst, start in enumerate((10.0, 20.0, 30.0), 1):
        for joined in range(5):
            fleet = build_fleet(1 + 5 * burst + joined)
            assert len(members.roster_of(fleet, now=start + joined / 100).ring) < 1 + 5 * burst
        roster = members.roster_of(fleet, now=start + 0.2)
        assert len(roster.ring) == 5 + 5 * burst
        assert members.roster_of(fleet, now=start + 5.0) is roster
    assert built == [1, 10, 15, 20]


def test_who_is_forgotten_is_not_absent() -> None:
    """It is told once, and takes no memory from then on."""
    members = Members(points_per_worker=16)
    members.roster_of(build_fleet(3), now=0.0)
    members.roster_of(build_fleet(1), now=1.0)
    members.long_absent(1.0, 60.0)
    gone = members.long_absent(100.0, 60.0)
    assert len(gone) == 2
    for name in gone:
        members.forget(name)
    assert members.long_absent(200.0, 60.0) == []


def test_the_first_ring_is_not_waited_for() -> None:
    """A gateway that has just started has homes at once."""
    assert len(Members(points_per_worker=16, gather_seconds=0.2).roster_of(build_fleet(3), now=0.0).ring) == 3


def test_64_workers_join_without_a_stall() -> None:
    """The points of each are laid out when it is heard of; the ring is then put together in a few milliseconds."""
    members, fleet = Members(POINTS_PER_WORKER), build_fleet(64)
    members.roster_of(build_fleet(2))
    ahead = [cpu_milliseconds(lambda view=view: members.expect(view.name, 1)) for view in fleet.workers]
    spent = cpu_milliseconds(lambda: members.roster_of(fleet))
    assert median(ahead) < 2.0
    assert spent < 25.0, "5 ms on a quiet machine (bench/scale.py)"


def cpu_milliseconds(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return (time.process_time() - before) * 1e3
