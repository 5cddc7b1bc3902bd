"""The arithmetic of limits: what passes, what waits how long, and that nothing is lost or made of nothing."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limit_settings import TenantBudget, TenantLimits
from gateway.limits.allowance import BUDGET, CONCURRENCY, REQUESTS, TOKENS, Allowance, Bucket, Refusal, Terms, terms_of


def build_allowance(**terms: object) -> Allowance:
    return Allowance(Terms(**terms), 0.0)


def test_a_minutes_worth_may_come_at_once_and_then_one_by_one():
    """60 a minute: sixty at once, then one each second."""
    allowance = build_allowance(requests=60)
    assert [allowance.take(0, 0.0) for _ in range(60)] == [None] * 60
    refused = allowance.take(0, 0.0)
    assert refused == Refusal(REQUESTS, 1.0)
    assert allowance.take(0, 0.5) == Refusal(REQUESTS, 0.5)
    assert allowance.take(0, 1.0) is None
    assert allowance.take(0, 1.0) is not None


def test_what_was_reserved_and_not_used_goes_back():
    """The next request sees the difference at once."""
    allowance = build_allowance(tokens=1000)
    assert allowance.take(900, 0.0) is None
    assert allowance.take(200, 0.0) == Refusal(TOKENS, pytest.approx(6.0))
    allowance.settle(900, 100, 0.0)
    assert allowance.take(900, 0.0) is None


def test_what_was_used_beyond_it_is_owed():
    """A level below zero refills like any other."""
    allowance = build_allowance(tokens=600)
    allowance.take(100, 0.0)
    allowance.settle(100, 1200, 0.0)
    assert allowance.take(10, 0.0) == Refusal(TOKENS, pytest.approx(61.0))
    assert allowance.take(10, 61.0) is None


def test_a_prompt_larger_than_a_minutes_worth_passes_when_the_bucket_is_full():
    """Else it could never pass; it leaves a debt."""
    allowance = build_allowance(tokens=600)
    assert allowance.take(1500, 0.0) is None
    assert allowance.take(1, 0.0) == Refusal(TOKENS, pytest.approx(90.1))
    assert allowance.take(1500, 120.0) == Refusal(TOKENS, pytest.approx(30.0))


def test_slots_are_given_back():
    """Concurrency counts what is under way, not what was."""
    allowance = build_allowance(concurrency=2)
    assert allowance.take(0, 0.0) is None
    assert allowance.take(0, 0.0) is None
    assert allowance.take(0, 0.0) == Refusal(CONCURRENCY, 1.0)
    allowance.settle(0, 0, 0.0)
    assert allowance.take(0, 0.0) is None


def test_a_refusal_takes_nothing():
    """Neither a request nor a slot nor a token is gone."""
    allowance = build_allowance(requests=10, tokens=100, concurrency=5)
    allowance.take(100, 0.0)
    for _ in range(20):
        assert allowance.take(50, 0.0) == Refusal(TOKENS, pytest.approx(30.0))
    assert (allowance.held, allowance.requests.level) == (1, 9.0)


def test_a_budget_begins_with_its_first_token_and_anew_after_its_end():
    """Spent means refused until the period is over."""
    allowance = build_allowance(budget=1000, budget_seconds=100.0, budget_refuses=True)
    assert allowance.take(600, 50.0) is None
    assert allowance.take(600, 60.0) is None
    assert allowance.take(1, 70.0) == Refusal(BUDGET, pytest.approx(80.0))
    assert allowance.take(1, 150.0) is None
    assert allowance.budget_used == 1


def test_a_budget_that_does_not_refuse_is_counted_all_the_same():
    """For `warn` and `deprioritise`."""
    allowance = build_allowance(budget=100, budget_seconds=100.0)
    assert allowance.take(600, 0.0) is None
    assert allowance.take(600, 0.0) is None
    assert allowance.spent(99.0)
    assert not allowance.spent(100.0)


def test_a_budget_is_settled_too():
    """By what was used, and never below zero."""
    allowance = build_allowance(budget=1000, budget_seconds=100.0, budget_refuses=True)
    allowance.take(900, 0.0)
    allowance.settle(900, 100, 1.0)
    assert allowance.budget_used == 100
    allowance.settle(900, 0, 1.0)
    assert allowance.budget_used == 0


def test_a_share_is_a_part_of_everything_and_at_least_one_slot():
    """Three gateways that cannot hear each other."""
    whole = Terms(requests=60, tokens=900, concurrency=20, budget=300, budget_seconds=1.0, budget_refuses=True)
    assert whole.divided(3) == Terms(20.0, 300.0, 6, 100.0, 1.0, True)
    assert whole.divided(100).concurrency == 1
    assert whole.divided(1) is whole
    assert Terms().divided(3) == Terms(concurrency=None)


def test_a_share_of_less_than_one_request_still_passes_now_and_then():
    """Two a minute over four gateways: each lets one pass every two minutes."""
    allowance = Allowance(Terms(requests=2).divided(4), 0.0)
    passed = [now for now in range(600) if allowance.take(0, float(now)) is None]
    assert len(passed) == 5


def test_other_terms_keep_what_is_used_in_proportion():
    """Half empty stays half empty; a new limit begins full."""
    allowance = build_allowance(requests=100, budget=100, budget_seconds=9.0)
    for _ in range(50):
        allowance.take(1, 0.0)
    allowance.adopt(Terms(requests=10, tokens=7, budget=10, budget_seconds=9.0), 0.0)
    assert (allowance.requests.level, allowance.tokens.level, allowance.budget_used) == (5.0, 7.0, 5.0)
    allowance.adopt(Terms(), 0.0)
    assert (allowance.requests, allowance.tokens, allowance.budget_used) == (None, None, 0.0)
    assert allowance.held == 50


def test_pass_by_takes_whatever_is_left():
    """Open: nobody is refused, and all is counted."""
    allowance = build_allowance(
        requests=1, tokens=10, concurrency=1, budget=5, budget_seconds=10.0, budget_refuses=True
    )
    for _ in range(3):
        allowance.pass_by(10, 0.0)
    assert (allowance.held, allowance.requests.level, allowance.tokens.level, allowance.budget_used) == (3, -2, -20, 30)


def test_the_numbers_come_from_the_settings():
    """What is left out is no limit; periods are spelled."""
    assert terms_of(None, None) == Terms()
    limits = TenantLimits(tokens_per_minute=5, requests_per_minute=6, concurrency=7)
    assert terms_of(limits, TenantBudget(tokens=8, every="2h")) == Terms(6, 5, 7, 8, 7200.0, True)
    assert not terms_of(None, TenantBudget(tokens=8, when_spent="warn")).budget_refuses


@pytest.mark.parametrize(("every", "seconds"), [("30d", 2592000.0), ("12h", 43200.0), ("90m", 5400.0), ("600s", 600.0)])
def test_periods_in_seconds(every, seconds):
    """Days, hours, minutes, seconds."""
    assert TenantBudget(tokens=1, every=every).every_seconds == seconds


def test_a_clock_that_goes_back_gives_nothing():
    """Nor does it take anything."""
    bucket = Bucket(60.0, 100.0)
    bucket.add(-60.0)
    assert bucket.now_at(90.0) == 0.0
    assert bucket.now_at(101.0) == 1.0


moves = st.lists(
    st.tuples(
        st.integers(0, 400),  # quarter seconds that pass before
        st.integers(0, 900),  # tokens to reserve
        st.none() | st.integers(0, 1500),  # tokens used by the oldest request under way, which ends; None: nobody ends
    ),
    max_size=60,
)


@given(moves, st.integers(1, 30), st.integers(1, 800), st.integers(1, 6))
def test_as_a_model_in_exact_fractions(sequence, requests, tokens, slots):
    """The same verdicts as arithmetic without rounding, and never more held than allowed."""
    allowance = build_allowance(requests=requests, tokens=tokens, concurrency=slots)
    left, store = Fraction(requests), Fraction(tokens)
    now, under_way = Fraction(0), []
    for quarters, cost, used in sequence:
        passed = Fraction(quarters, 4)
        now += passed
        left = min(Fraction(requests), left + passed * requests / 60)
        store = min(Fraction(tokens), store + passed * tokens / 60)
        if used is not None and under_way:
            reserved = under_way.pop(0)
            allowance.settle(reserved, used, float(now))
            store = min(Fraction(tokens), store + reserved - used)
        fits = len(under_way) < slots and left >= 1 and store >= min(cost, tokens)
        near = min(abs(left - 1), abs(store - min(cost, tokens))) < Fraction(1, 10**6)
        got = allowance.take(cost, float(now))
        if near:  # a rounding decides
            fits = got is None
        assert (got is None) == fits, got
        if fits:
            under_way.append(cost)
            left, store = left - 1, store - cost
        assert allowance.held == len(under_way) <= slots


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 100)), max_size=80), st.integers(1, 50))
def test_no_stretch_of_time_sees_more_than_its_refill_and_one_burst(sequence, requests):
    """Whatever the arrivals: at most a minute's worth and what refilled since."""
    allowance, now, passed = build_allowance(requests=requests), 0.0, 0
    for pause, _ in sequence:
        now += pause
        passed += allowance.take(0, now) is None
    assert passed <= requests + now * requests / 60 + 1e-6


@given(st.floats(0.01, 1000), st.integers(1, 100), st.integers(1, 500))
def test_waiting_as_told_is_enough(tokens, limit, cost):
    """Who comes again after the time he was told passes, if nobody else came."""
    allowance = build_allowance(tokens=limit)
    allowance.take(tokens, 0.0)
    refusal = allowance.take(cost, 0.0)
    if refusal is not None:
        assert allowance.take(cost, refusal.wait_seconds + 1e-6) is None
