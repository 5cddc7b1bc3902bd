"""The virtual queue: how long a newcomer would wait, and how first tokens put it right."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.virtual_queue import VirtualQueue


def build_queue(*seconds: float, now: float = 0.0, silent: bool = False) -> VirtualQueue:
    queue = VirtualQueue()
    for number, estimate in enumerate(seconds):
        queue.push(f"r{number}", estimate, now, silent=silent)
    return queue


def test_an_empty_queue_does_not_wait() -> None:
    """Nobody ahead, no wait."""
    assert VirtualQueue().wait(5.0) == 0.0


def test_the_wait_is_the_sum_of_what_is_ahead_and_the_head_is_being_served() -> None:
    """Time passes for the head only."""
    queue = build_queue(2.0, 3.0, 1.0)
    assert queue.wait(0.0) == 6.0
    assert queue.wait(1.5) == 4.5


def test_a_head_that_takes_longer_than_estimated_is_expected_any_moment() -> None:
    """It counts nothing any more, and those behind it still do."""
    assert build_queue(2.0, 3.0).wait(50.0) == 3.0


def test_a_first_token_ends_the_head_and_starts_the_next() -> None:
    """The wait is put right, whether the head was faster or slower than thought."""
    queue = build_queue(2.0, 3.0)
    assert queue.started("r0", 0.5)
    assert queue.wait(0.5) == 3.0
    assert queue.wait(1.5) == 2.0
    assert queue.started("r1", 9.0)
    assert queue.wait(9.0) == 0.0


def test_a_first_token_out_of_turn_leaves_the_head() -> None:
    """The worker reordered: the other is gone, the head begins again now."""
    queue = build_queue(2.0, 3.0)
    assert queue.started("r1", 1.0)
    assert queue.wait(1.0) == 2.0


def test_a_cancelled_request_is_not_waited_for() -> None:
    """In the middle it just leaves; at the head the next begins."""
    queue = build_queue(2.0, 3.0, 1.0)
    assert queue.remove("r1", 0.5)
    assert queue.wait(0.5) == 2.5
    assert queue.remove("r0", 1.0)
    assert queue.wait(1.0) == 1.0


def test_unknown_requests_are_ignored() -> None:
    """News can come twice or late."""
    queue = build_queue(2.0)
    assert not queue.started("nobody", 1.0)
    assert not queue.remove("nobody", 1.0)
    assert queue.wait(1.0) == 1.0


def test_a_request_pushed_twice_is_there_once() -> None:
    """The second estimate counts, at the end of the queue."""
    queue = build_queue(2.0, 3.0)
    queue.push("r0", 4.0, 0.0)
    assert queue.request_ids() == ["r1", "r0"]
    assert queue.wait(0.0) == 7.0


def test_silent_requests_are_served_as_estimated() -> None:
    """Answers that come whole never tell of a first token: they leave when their time has run out."""
    queue = build_queue(2.0, 3.0, 1.0, silent=True)
    assert queue.wait(2.5) == 3.5
    assert queue.wait(5.5) == 0.5
    assert queue.wait(99.0) == 0.0
    queue.push("late", 2.0, 100.0)
    assert (queue.request_ids(), queue.wait(100.5)) == (["late"], 1.5)


def test_a_silent_head_makes_way_for_one_that_will_tell() -> None:
    """The next begins when the silent one's time ran out, not when somebody looked."""
    queue = build_queue(2.0, silent=True)
    queue.push("talks", 3.0, 1.0)
    assert queue.wait(4.0) == 1.0
    assert queue.wait(9.0) == 0.0
    queue.push("next", 1.0, 9.0)
    assert queue.request_ids() == ["talks", "next"]
    assert queue.started("talks", 9.5)
    assert queue.wait(9.5) == 1.0


def test_a_clock_that_steps_back_does_not_lengthen_the_wait() -> None:
    """Times of two replicas may differ a little."""
    assert build_queue(2.0, now=10.0).wait(9.0) == 2.0


def test_clearing_forgets_everybody() -> None:
    """A restarted worker has no queue."""
    queue = build_queue(2.0, 3.0)
    queue.clear()
    assert (len(queue), queue.wait(0.0)) == (0, 0.0)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "started", "remove"]),
        st.integers(0, 6),
        st.floats(0.0, 5.0),
        st.booleans(),
        st.floats(0.0, 2.0),
    ),
    max_size=40,
)


@given(EVENTS)
@settings(max_examples=200, deadline=None)
def test_the_wait_is_never_negative_nor_more_than_everything_ahead(events: list[tuple]) -> None:
    """Whatever comes in whatever order: totals agree, and waiting only shortens while nothing happens."""
    queue, now, estimates = VirtualQueue(), 0.0, {}
    for kind, number, seconds, silent, passed in events:
        now += passed
        if kind == "push":
            queue.push(f"r{number}", seconds, now, silent=silent)
            estimates[f"r{number}"] = seconds
        else:
            getattr(queue, kind)(f"r{number}", now)
        queue.check_integrity()
        ahead = sum(estimates[name] for name in queue.request_ids())
        assert 0.0 <= queue.wait(now) <= ahead + 1e-6
        assert queue.wait(now + 1.0) <= queue.wait(now) + 1e-9


def test_damage_is_noticed() -> None:
    """The total is checked against the entries."""
    queue = build_queue(2.0)
    queue._total = 5.0
    with pytest.raises(AssertionError, match="sum"):
        queue.check_integrity()
