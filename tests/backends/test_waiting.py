"""The queue: ready ones by rank, deferred ones passed over until they are woken."""

from __future__ import annotations

import pytest

from backends.waiting import Waiting
from tests.backends.core_builders import build_sequence


def build_waiting(*ranks: tuple[int, int]):
    waiting, sequences = Waiting(), []
    for rank in ranks:
        sequence = build_sequence([1], f"{rank}")
        sequence.rank = rank
        waiting.add(sequence)
        sequences.append(sequence)
    return waiting, sequences


def test_the_lowest_rank_is_first_whenever_it_came():
    """Priority before arrival; a preempted one finds its place again."""
    waiting, (late, early, urgent) = build_waiting((0, 7), (0, 3), (-1, 9))
    assert list(waiting.ready) == [urgent, early, late]
    waiting.remove(early)
    waiting.add(early)
    assert list(waiting.ready) == [urgent, early, late]


def test_a_deferred_one_counts_and_is_passed_over():
    """Until it is woken, into its old place."""
    waiting, (first, second) = build_waiting((0, 1), (0, 2))
    waiting.defer(first)
    assert (len(waiting), waiting.deferred_count) == (2, 1)
    assert list(waiting.ready) == [second]
    assert list(waiting) == [second, first]
    waiting.wake(first)
    assert list(waiting.ready) == [first, second]
    assert waiting.deferred_count == 0


def test_one_may_be_deferred_from_the_start():
    """A sibling that waits for a fork."""
    waiting, _ = build_waiting()
    child = build_sequence([1])
    waiting.add_deferred(child)
    assert (len(waiting), list(waiting.ready)) == (1, [])
    waiting.remove(child)
    assert len(waiting) == 0


def test_nobody_leaves_twice():
    """ValueError, also for one of equal rank."""
    waiting, (one, _) = build_waiting((0, 1), (0, 2))
    waiting.remove(one)
    stranger = build_sequence([1], "stranger")
    stranger.rank = (0, 2)
    for sequence in (one, stranger):
        with pytest.raises(ValueError, match="not in the queue"):
            waiting.remove(sequence)


def test_only_deferred_ones_can_be_woken():
    """Else one would be in the queue twice."""
    waiting, (one,) = build_waiting((0, 1))
    with pytest.raises(KeyError):
        waiting.wake(one)


def test_each_partition_has_a_first_one():
    """Whoever is first of those that are not held up; all together they are in the order of their ranks."""
    waiting = Waiting()
    for number, partition in enumerate(("p", "", "p", "q")):
        sequence = build_sequence([1], f"{number}", partition=partition)
        sequence.rank = (0, number)
        waiting.add(sequence)
    assert [one.request_id for one in waiting.ready] == ["0", "1", "2", "3"]
    firsts = [waiting.first(held_up) for held_up in ((), {"p"}, {"p", ""}, {"p", "q", ""})]
    assert [one and one.request_id for one in firsts] == ["0", "1", "3", None]
