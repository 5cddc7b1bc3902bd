"""The retry budget: a share of what was asked lately, and back-off with full jitter."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.retry_budget import LEAST_RETRIES, WINDOW_SECONDS, RetryBudget, back_off_seconds

steps = st.lists(
    st.tuples(st.sampled_from(["ask", "retry", "wait"]), st.floats(0.0, 15.0), st.integers(1, 30)), max_size=80
)


@settings(deadline=None)
@given(steps, st.floats(0.0, 1.0))
def test_no_window_has_more_retries_than_its_share(order, share) -> None:
    """Row A11, against a model that keeps every event: 20 % of the requests, or three."""
    budget, now, asked, retried = RetryBudget(share), 1000.0, [], []
    for what, seconds, count in order:
        if what == "wait":
            now += seconds
            continue
        for _ in range(count):
            first = int(now) - WINDOW_SECONDS + 1
            recent = sum(int(at) >= first for at in asked)
            spent = sum(int(at) >= first for at in retried)
            if what == "ask":
                budget.request(now)
                asked.append(now)
            else:
                expected = spent < max(LEAST_RETRIES, int(share * recent))
                assert budget.grant(now) is expected
                retried += [now] if expected else []


def test_when_everything_fails_a_request_costs_a_fifth_more() -> None:
    """Row A10: tries per request at most 1.2, with every request asking for two retries."""
    budget, tries = RetryBudget(0.2), 0
    for number in range(400):
        now = number / 40
        budget.request(now)
        tries += 1 + budget.grant(now) + budget.grant(now)
    assert tries / 400 <= 1.2


def test_retries_that_are_made_in_any_case_count() -> None:
    """What a well worker takes is not there for others any more."""
    budget = RetryBudget(0.2)
    for _ in range(40):
        budget.request(5.0)
    for _ in range(7):
        budget.made(6.0)
    assert [budget.grant(7.0) for _ in range(3)] == [True, False, False]


def test_a_quiet_gateway_may_retry() -> None:
    """A fifth of one request is none."""
    budget = RetryBudget(0.2)
    budget.request(5.0)
    assert [budget.grant(5.0) for _ in range(4)] == [True, True, True, False]
    assert budget.grant(5.0 + WINDOW_SECONDS)


def test_a_clock_that_jumps_far_forgets_everything() -> None:
    """Nothing of an hour ago pays for a retry now."""
    budget = RetryBudget(0.2)
    for _ in range(100):
        budget.request(1.0)
    assert sum(budget.grant(3601.0) for _ in range(20)) == LEAST_RETRIES


@given(st.integers(1, 20), st.floats(0.0, 1.0))
def test_back_off_is_bounded_and_short_at_first(retry, chance) -> None:
    """25 ms before the first (row A1: at most a round trip and 50 ms), 250 ms in the end."""
    assert 0.0 <= back_off_seconds(retry, chance) <= 0.25
    assert back_off_seconds(1, chance) <= 0.025
    assert back_off_seconds(10, 1.0) == 0.25
