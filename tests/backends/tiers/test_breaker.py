"""The breaker: rests after failures, longer each time, and forgets them when it works."""

from __future__ import annotations

from backends.tiers.breaker import FIRST_REST_SECONDS, LONGEST_REST_SECONDS, Breaker
from tests.backends.core_builders import ManualClock


def test_one_failure_is_enough_for_a_rest():
    """And the rest ends by itself."""
    clock = ManualClock()
    breaker = Breaker(clock)
    assert not breaker.resting
    breaker.failed()
    assert breaker.resting
    clock.sleep(FIRST_REST_SECONDS)
    assert not breaker.resting


def test_rests_grow_to_a_bound():
    """Doubled each time that the first try fails."""
    clock = ManualClock()
    breaker, rests = Breaker(clock), []
    for _ in range(8):
        breaker.failed()
        begin = clock.now
        while breaker.resting:
            clock.sleep(0.5)
        rests.append(clock.now - begin)
    assert rests == [min(FIRST_REST_SECONDS * 2**n, LONGEST_REST_SECONDS) for n in range(8)]


def test_success_makes_it_young_again():
    """The next failure costs the first rest only."""
    clock = ManualClock()
    breaker = Breaker(clock)
    for _ in range(5):
        breaker.failed()
        clock.sleep(LONGEST_REST_SECONDS)
    breaker.worked()
    breaker.failed()
    clock.sleep(FIRST_REST_SECONDS)
    assert not breaker.resting


def test_it_may_take_more_than_one_failure():
    """In a row."""
    breaker = Breaker(ManualClock(), failures=2)
    breaker.failed()
    breaker.worked()
    breaker.failed()
    assert not breaker.resting
    breaker.failed()
    assert breaker.resting
