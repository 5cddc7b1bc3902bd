"""Ejection: back-off, trials, panic and slow start, as state machines without a clock of their own."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.ejection import (
    FAILURES_TO_EJECT,
    LIES_BELIEVED,
    MOST_BUSY_SECONDS,
    EjectionRules,
    Fitness,
    Standing,
    choose,
    slow_start_bound,
)

PROBE_SECONDS = 1.0


def build_out(now: float = 0.0) -> Standing:
    """A worker that was just ejected."""
    standing = Standing()
    for _ in range(FAILURES_TO_EJECT):
        standing.failed(now)
    return standing


def test_three_failures_in_a_row_eject() -> None:
    """Row A1: two are bad luck, an answer in between forgives."""
    standing = Standing()
    heard = [standing.failed(0.0), standing.failed(0.0), standing.answered(0.0)]
    heard += [standing.failed(0.0), standing.failed(0.0), standing.failed(0.0), standing.failed(0.0)]
    assert heard == [False, False, False, False, False, True, False]


def test_a_good_trial_brings_it_back_at_once() -> None:
    """Row A9: no back-off is waited out by who is well again."""
    standing = build_out(10.0)
    assert standing.trial_due(10.1)
    assert not standing.tried(10.1, good=False)
    assert standing.tried(10.2, good=True)
    assert not standing.out
    assert standing.returned_at == 10.2


def test_an_answer_in_a_panic_brings_it_back() -> None:
    """Row A10: a real answer is the best of trials."""
    standing = build_out()
    assert standing.answered(0.5)
    assert not standing.out
    assert not standing.unsettled


def lie(standing: Standing, now: float) -> float:
    """A trial finds it well and the next requests do not; when that was."""
    while not standing.trial_due(now):
        now += PROBE_SECONDS
    assert standing.tried(now, good=True)
    for _ in range(FAILURES_TO_EJECT):
        standing.failed(now)
    assert standing.out
    return now


def test_whose_trials_lie_waits_longer_each_time() -> None:
    """Row A8: 1 s × 2^k, at most a minute; real requests are not spent on it every second."""
    standing, now, returns = build_out(), 0.0, []
    for _ in range(12):
        now = lie(standing, now)
        returns.append(now)
    waits = [later - earlier for earlier, later in pairwise(returns)]
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(60.0, abs=PROBE_SECONDS)
    assert waits[4] < 60.0


def test_good_standing_shortens_the_next_ejection() -> None:
    """A worker is not blamed for last week."""
    standing, now = build_out(), 0.0
    for _ in range(8):
        now = lie(standing, now)
    long = standing.ejection_seconds
    standing.tried(now + 100.0, good=True)
    standing.answered(now + 100.0)
    for _ in range(FAILURES_TO_EJECT):
        standing.failed(now + 100.0 + 5 * 60.0)
    assert standing.ejection_seconds < long
    assert standing.trial_due(now + 400.0)


def test_a_worker_is_not_tried_more_often_than_that_tells() -> None:
    """Trials are work too; a second is soon enough."""
    standing = build_out(0.0)
    standing.tried(1.0, good=False)
    assert [standing.trial_due(now) for now in (1.1, 1.7, 1.8)] == [False, False, True]


def test_well_is_who_has_not_failed_for_a_while() -> None:
    """Row A11: half of its answers good is not well; new is."""
    standing = Standing()
    assert standing.well(0.0)
    standing.failed(5.0)
    standing.answered(5.1)
    assert [standing.well(now) for now in (5.2, 14.9, 15.0)] == [False, False, True]
    standing.busy(20.0, 1.0)
    standing.rested(21.0)
    assert [standing.well(now) for now in (22.0, 31.0)] == [False, True]


def test_a_busy_worker_is_spared_for_as_long_as_it_asked() -> None:
    """Case B-20: the mark goes away by itself, and an hour is not believed."""
    standing = Standing()
    standing.busy(0.0, 3.0)
    assert [standing.rested(now) for now in (1.0, 2.9, 3.0, 4.0)] == [False, False, True, False]
    standing.busy(10.0, 3600.0)
    assert standing.rested(10.0 + MOST_BUSY_SECONDS)


def picked(*workers: Fitness, share: float = 0.5) -> tuple[list[int], bool]:
    choice = choose(workers, share)
    return sorted(choice.nevertheless), choice.panic


F, B, X, D = Fitness.FIT, Fitness.BUSY, Fitness.OUT, Fitness.DEAD


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ((F, F, F, F), ([], False)),
        ((F, F, F, X), ([], False)),
        ((F, F, X, X), ([], False)),
        ((F, X, X, X), ([1, 2, 3], True)),
        ((X, X, X, X), ([0, 1, 2, 3], True)),
        ((F, D, D, X), ([3], True)),
        ((D, D, D, D), ([], False)),
        ((X,), ([0], True)),
        ((B,), ([0], False)),
        ((F, B), ([], False)),
        ((B, B), ([0, 1], False)),
        ((X, B, B), ([1, 2], False)),
        ((D, D, X, B), ([2], True)),
        ((), ([], False)),
    ],
)
def test_panic_asks_all_that_are_not_known_dead(workers, expected) -> None:
    """Half may be out; beyond that all but the dead are asked. The last that is not busy is never passed over."""
    assert picked(*workers) == expected


def test_a_share_of_its_own_moves_the_border() -> None:
    """`ejected_share`."""
    assert picked(F, F, F, X, share=0.2) == ([3], True)
    assert picked(F, X, X, X, share=1.0) == ([], False)


@given(st.lists(st.sampled_from(Fitness), max_size=12), st.floats(0, 1))
def test_who_can_be_asked_is_asked(workers, share) -> None:
    """Never is nobody admissible while somebody is fit or only busy; the dead never are."""
    choice = choose(workers, share)
    usable = [each for index, each in enumerate(workers) if each is F or index in choice.nevertheless]
    assert D not in usable
    if F in workers or B in workers:
        assert usable
    if workers and all(each is X for each in workers) and share < 1:
        assert len(usable) == len(workers)


@given(st.integers(1, 1000), st.floats(0, 100), st.floats(-1, 100))
def test_slow_start_grows_and_never_blocks(bound, returned_at, passed) -> None:
    """Row A9: linear, at least one, never above the bound."""
    now = slow_start_bound(bound, returned_at, returned_at + passed, 5.0)
    later = slow_start_bound(bound, returned_at, returned_at + passed + 1.0, 5.0)
    assert 1 <= now <= later <= bound
    if passed > 5.001:
        assert now == bound


class Breaker(RuleBasedStateMachine):
    """Row A12: fail, answer, trial, time out, be cancelled, let time pass, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.standing = Standing(EjectionRules())
        self.now = 0.0
        self.lies = 0

    @rule()
    def fails(self) -> None:
        self.standing.failed(self.now)

    @rule()
    def answers(self) -> None:
        self.standing.answered(self.now)

    @rule(good=st.booleans())
    def is_tried(self, good) -> None:
        if self.standing.trial_due(self.now):
            self.standing.tried(self.now, good=good)

    @rule()
    def hangs(self) -> None:
        if not self.standing.out:
            self.standing.eject(self.now)

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds) -> None:
        self.now += seconds

    @invariant()
    def a_healthy_worker_comes_back(self) -> None:
        """Within a probe's interval and a second where its trials were honest, in a minute where they were not."""
        if not self.standing.out:
            return
        soon = self.standing.trial_due(self.now + PROBE_SECONDS)
        assert soon or self.standing._lies >= LIES_BELIEVED
        assert self.standing.trial_due(self.now + 60.0)

    @invariant()
    def what_an_answer_would_change_is_known(self) -> None:
        standing = self.standing
        assert standing.unsettled or (not standing.out and not standing.failures_in_a_row)

    def teardown(self) -> None:
        self.now += 60.0
        if self.standing.out:
            assert self.standing.trial_due(self.now)
            assert self.standing.tried(self.now, good=True)
        self.standing.answered(self.now)
        assert not self.standing.out
        assert not self.standing.unsettled


TestBreaker = Breaker.TestCase
TestBreaker.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
