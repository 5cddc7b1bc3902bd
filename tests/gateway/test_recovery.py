"""Workers on their way out and back, as placement sees them: the fleet with a clock of ours."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.ejection import FAILURES_TO_EJECT
from gateway.fault_settings import Faults
from gateway.fleet import ChangeKind, Fleet
from gateway.worker_metrics import WorkerFigures
from gateway.worker_state import Outcome, ProbeResult, ServingFacts, State
from tests.gateway.builders import build_backend, build_cards, build_healthy

GONE = ProbeResult(trouble="no connection", refused=True)


class Rig:
    """Four workers with room for twenty requests each."""

    def __init__(self, count: int = 4, max_in_flight: int | None = 20, **faults: float) -> None:
        self.now = 100.0
        self.fleet = Fleet({"m": ServingFacts(max_in_flight=max_in_flight)}, Faults(**faults), lambda: self.now)
        self.names = [f"w{number}" for number in range(count)]
        for name in self.names:
            self.fleet.add(build_backend(name))
            self.probe(name)

    def probe(self, name: str, *, trial: bool | None = None, result: ProbeResult | None = None) -> None:
        result = result or ProbeResult(cards=build_cards("m"), trial=trial)
        self.fleet.probed(name, result, self.now)

    def report(self, name: str, *outcomes: Outcome) -> None:
        for outcome in outcomes:
            self.fleet.report(self.fleet.worker(name), outcome)

    def eject(self, *names: str) -> None:
        for name in names:
            self.report(name, *[Outcome.BROKE] * FAILURES_TO_EJECT)

    @property
    def usable(self) -> list[str]:
        return [view.name for view in self.fleet.view("m").workers if view.admissible]

    def bounds(self) -> Sequence[int | None]:
        return [view.max_in_flight for view in self.fleet.view("m").workers]


def test_an_ejected_worker_is_back_with_a_good_trial_and_not_with_a_good_probe() -> None:
    """Rows A9 and A12."""
    rig = Rig()
    rig.eject("w0")
    for trial in (None, False):
        rig.probe("w0", trial=trial)
        assert rig.usable == ["w1", "w2", "w3"]
    rig.probe("w0", trial=True)
    assert rig.usable == rig.names


def test_rounds_of_probes_bring_it_back_within_a_second_of_being_well() -> None:
    """Row A12: a quarter of a second between rounds, and a trial only when one is due."""
    rig = Rig()
    rig.eject("w0")
    trials, well_at = 0, rig.now + 10.0
    while not rig.fleet.worker("w0").up:
        rig.now += 0.25
        due = rig.fleet.worker("w0").standing.trial_due(rig.now)
        trials += due
        rig.probe("w0", trial=rig.now >= well_at if due else None)
    assert rig.now - well_at <= 1.0
    assert 10 <= trials <= 14


def test_a_share_of_it_at_first_and_all_of_it_after_five_seconds() -> None:
    """Row A9: linear, at least one, and only where a bound was given."""
    rig = Rig()
    rig.eject("w0")
    rig.probe("w0", trial=True)
    seen = []
    for _ in range(6):
        seen.append(rig.bounds()[0])
        rig.now += 1.0
    assert seen == [1, 4, 8, 12, 16, 20]
    assert rig.bounds() == [20] * 4
    assert not rig.fleet.recovery.limited
    unbounded = Rig(max_in_flight=None)
    unbounded.eject("w0")
    unbounded.probe("w0", trial=True)
    assert unbounded.bounds() == [None] * 4


def test_after_an_outage_nobody_starts_slowly() -> None:
    """Row A10: there are no others that could carry what they do not take yet."""
    rig = Rig()
    for name in rig.names:
        rig.report(name, Outcome.REFUSED)
    assert rig.usable == []
    for name in rig.names:
        rig.probe(name)
    assert rig.bounds()[:3] == [20, 20, 20]


def test_a_worker_that_is_down_costs_no_look_at_each_request() -> None:
    """It may be so for days."""
    rig = Rig()
    rig.eject("w0")
    assert rig.fleet.recovery.limited
    rig.report("w0", Outcome.REFUSED)
    assert rig.usable == ["w1", "w2", "w3"]
    assert not rig.fleet.recovery.limited


def test_the_first_start_is_not_slow() -> None:
    """A gateway that starts must not refuse what its workers can do."""
    assert Rig().bounds() == [20] * 4


def test_more_than_half_out_is_a_panic() -> None:
    """All that are not known to be dead are asked; told while it lasts, over with the first that is back."""
    rig = Rig()
    rig.eject("w0", "w1")
    assert (rig.usable, rig.fleet.panics("m")) == (["w2", "w3"], False)
    rig.eject("w2")
    assert (rig.usable, rig.fleet.panics("m")) == (rig.names, True)
    rig.report("w3", Outcome.REFUSED)
    assert rig.usable == ["w0", "w1", "w2"]
    rig.report("w0", Outcome.ANSWERED)
    rig.report("w1", Outcome.ANSWERED)
    assert (rig.usable, rig.fleet.panics("m")) == (["w0", "w1"], False)


def test_those_that_leave_count_for_nothing() -> None:
    """Of two, one leaves: the other is all there is."""
    rig = Rig(2)
    rig.fleet.drain("w1")
    rig.eject("w0")
    assert rig.usable == ["w0"]


def test_a_worker_that_hangs_is_not_asked_even_in_a_panic() -> None:
    """Row A5: what it was sent would hang too; a good trial is needed to be back."""
    rig = Rig(3)
    for name in rig.names:
        rig.report(name, *[Outcome.SILENT] * FAILURES_TO_EJECT)
    assert rig.usable == []
    rig.probe("w0")
    assert rig.usable == []
    rig.probe("w0", trial=True)
    assert rig.usable == ["w0"]
    assert not rig.fleet.worker("w0").hung


def test_a_hang_that_probes_find_is_told_as_such() -> None:
    """`backend_ejections_total{reason="hung"}`."""
    rig, heard = Rig(), []
    rig.fleet.on_change(lambda change: heard.append((change.kind, change.reason)))
    rig.probe("w0", result=ProbeResult(trouble="no answer", silent=True, hung=True))
    assert heard == [(ChangeKind.DOWN, "hung")]
    assert rig.fleet.worker("w0").trouble == "hangs: no byte comes of what it was asked"
    rig.probe("w0", trial=True)
    assert rig.fleet.worker("w0").up


def test_an_ejected_worker_that_dies_is_dead_and_must_still_be_tried() -> None:
    """Ejected, gone, there again: its trial decides."""
    rig = Rig()
    rig.eject("w0")
    rig.probe("w0", result=GONE)
    assert rig.fleet.worker("w0").state is State.DOWN
    rig.probe("w0", trial=False)
    assert rig.fleet.worker("w0").state is State.EJECTED
    rig.probe("w0", trial=True)
    assert rig.fleet.worker("w0").up


def test_a_sleeping_worker_comes_back_by_its_metrics() -> None:
    """Nothing is sent to it, nothing is believed of it, and it needs no trial to wake."""
    rig, heard = Rig(), []
    rig.fleet.on_change(lambda change: heard.append(change.kind))
    rig.probe("w0", result=build_healthy(figures=WorkerFigures(asleep=True)))
    assert rig.usable == ["w1", "w2", "w3"]
    assert heard == [ChangeKind.RESTARTED, ChangeKind.DOWN]
    rig.probe("w0", result=build_healthy(figures=WorkerFigures(asleep=False)))
    assert rig.usable == rig.names


@pytest.mark.parametrize("spared", [["w0"], ["w0", "w1", "w2"]])
def test_who_asked_to_be_spared_is_until_nobody_else_is_left(spared: list[str]) -> None:
    """Case B-20."""
    rig = Rig()
    for name in spared:
        rig.fleet.recovery.spare(rig.fleet.worker(name), 3.0)
    assert rig.usable == [name for name in rig.names if name not in spared]
    for name in rig.names:
        rig.fleet.recovery.spare(rig.fleet.worker(name), 3.0)
    assert rig.usable == rig.names
    rig.now += 3.1
    assert rig.usable == rig.names
    assert not rig.fleet.recovery.limited


def test_settings_are_heeded() -> None:
    """`ejected_share` and `slow_start_seconds`."""
    rig = Rig(ejected_share=0.8, slow_start_seconds=0.0)
    rig.eject("w0", "w1", "w2")
    assert rig.usable == ["w3"]
    rig.probe("w0", trial=True)
    assert rig.bounds()[0] == 20


class Outages(RuleBasedStateMachine):
    """Row A12 for a whole fleet: whatever happened, healthy workers are back after a round of probes or two."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()

    workers = st.sampled_from(["w0", "w1", "w2", "w3"])

    @rule(name=workers, outcome=st.sampled_from(Outcome), times=st.integers(1, 4))
    def attempts(self, name, outcome, times) -> None:
        self.rig.report(name, *[outcome] * times)

    @rule(name=workers, trial=st.sampled_from([None, True, False]))
    def good_probe(self, name, trial) -> None:
        due = self.rig.fleet.worker(name).standing.trial_due(self.rig.now)
        self.rig.probe(name, trial=trial if due else None)

    @rule(name=workers, silent=st.booleans(), hung=st.booleans())
    def bad_probe(self, name, silent, hung) -> None:
        trouble = ProbeResult(trouble="odd", silent=silent or hung, hung=hung, refused=not silent and not hung)
        self.rig.probe(name, result=trouble)

    @rule(name=workers, seconds=st.floats(0, 40))
    def asks_to_be_spared(self, name, seconds) -> None:
        self.rig.fleet.recovery.spare(self.rig.fleet.worker(name), seconds)

    @rule(seconds=st.floats(0, 30))
    def time_passes(self, seconds) -> None:
        self.rig.now += seconds

    @invariant()
    def the_pictures_are_right(self) -> None:
        usable = self.rig.usable
        self.rig.fleet.check_integrity()
        for worker in self.rig.fleet.workers:
            assert not (worker.state is State.DOWN and worker.name in usable)
        if any(worker.state is State.READY for worker in self.rig.fleet.workers):
            assert usable

    def teardown(self) -> None:
        """All are well from now on: within a minute everybody has his full share again."""
        self.rig.now += 60.0
        for name in self.rig.names:
            self.rig.probe(name, trial=True)
        assert self.rig.usable == self.rig.names
        self.rig.now += 5.1
        assert self.rig.bounds() == [20] * 4
        assert not self.rig.fleet.recovery.limited


TestOutages = Outages.TestCase
TestOutages.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
