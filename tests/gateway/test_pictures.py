"""The pictures that placement sees: drawn once, counts that are live, drawn anew when anything else changes."""

from __future__ import annotations

import pytest

from gateway.fleet import Fleet
from gateway.worker_state import Outcome, ProbeResult, ServingFacts
from tests.gateway.builders import build_backend, build_fleet, build_healthy


async def test_a_request_costs_no_drawing() -> None:
    """The picture stays the same object; its count goes up and down with the leases, in every model's picture."""
    fleet = build_fleet("w1", "w2")
    before, of_adapter = fleet.view("m"), fleet.view("an-adapter")
    async with fleet.lease("w2"), fleet.lease("w2"):
        assert fleet.view("m") is before
        assert [view.in_flight for view in before.workers] == [0, 2]
    assert fleet.view("m") is before
    assert [view.in_flight for view in before.workers] == [0, 0]
    assert of_adapter.workers == ()
    fleet.check_integrity()


async def test_a_bound_holds_at_once() -> None:
    """A worker that is full is inadmissible in the picture that was drawn before."""
    fleet = Fleet({"m": ServingFacts(max_in_flight=1)})
    fleet.add(build_backend("w1"))
    fleet.probed("w1", build_healthy(), now=0.0)
    (view,) = fleet.view("m").workers
    async with fleet.lease("w1"):
        assert view.inadmissible_because == "full"
    assert view.admissible


@pytest.mark.parametrize(
    "change",
    [
        lambda fleet: fleet.drain("w1"),
        lambda fleet: fleet.remove("w1"),
        lambda fleet: fleet.add(build_backend("w3")),
        lambda fleet: fleet.probed("w1", ProbeResult(trouble="no connection", refused=True), now=1.0),
        lambda fleet: fleet.report(fleet.worker("w1"), Outcome.REFUSED),
        lambda fleet: fleet.configure({"m": ServingFacts(max_in_flight=7)}),
        lambda fleet: fleet.revise(build_backend("w1", weight=3)),
        lambda fleet: fleet.measured("m", 100),
    ],
)
def test_whatever_else_changes_is_in_the_next_picture(change) -> None:
    """Membership, health, bounds, weights, the size of blocks."""
    fleet = build_fleet("w1", "w2")
    before = fleet.view("m")
    change(fleet)
    after = fleet.view("m")
    assert after is not before
    assert tuple(worker.name for worker in after.workers) == tuple(
        worker.name for worker in fleet.workers if worker.name in ("w1", "w2", "w3")
    )


def test_while_a_worker_rests_every_picture_is_drawn_anew() -> None:
    """Time alone may end its rest, or let an ejected one be asked after all."""
    fleet = build_fleet("w1", "w2")
    fleet.view("m")
    fleet.recovery.spare(fleet.worker("w1"), 60.0)
    assert fleet.view("m") is not fleet.view("m")
    assert [view.ready for view in fleet.view("m").workers] == [False, True]


def test_names_that_only_a_client_has_said_are_not_kept() -> None:
    """A picture of nobody is drawn each time: memory does not grow with the names asked for."""
    fleet = build_fleet("w1")
    assert fleet.view("unheard-of") is not fleet.view("unheard-of")
    assert fleet.view("m") is fleet.view("m")
