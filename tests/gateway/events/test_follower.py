"""Following a numbered stream: gaps, repeats, orders, new lives, and what cannot be had again."""

from __future__ import annotations

import pytest

from gateway.events.follower import REMEMBERED
from tests.gateway.events.follower_pair import Pair


def test_nothing_was_ever_published():
    """A new worker's replay is empty: everything there is, is known."""
    pair = Pair()
    assert pair.follower.complete
    assert pair.asked == [0]


def test_h11_a_gap_is_noticed_and_what_is_missing_is_asked_for():
    """H-11: numbers 0, 1, 2, 5: 3 and 4 come from the replay, asked once, from the last number heard on."""
    pair = Pair()
    messages = [pair.worker.publish(block) for block in range(6)]
    pair.hear(*messages[:3], messages[5])
    assert pair.sink.held == set(range(6))
    assert pair.asked == [0, 2]
    assert (pair.counts.gaps, pair.counts.replayed, pair.counts.lost) == (1, 3, 0)


def test_h11_a_gap_that_nobody_can_fill_costs_the_picture_of_that_worker():
    """H-11: without a replay endpoint, or when it is too late, the index is dropped and learned anew, incomplete."""
    for pair in (Pair(can_ask=False), Pair(keep=2)):
        messages = [pair.worker.publish(block) for block in range(6)]
        pair.hear(*messages[:2], messages[5])
        assert pair.counts.lost == 1
        assert pair.sink.held in ({5}, {4, 5})
        assert not pair.follower.complete
        pair.hear(pair.worker.publish(9))
        assert 9 in pair.sink.held
        assert pair.counts.lost == 1


def test_a_batch_that_the_worker_dropped_is_given_up_after_one_question():
    """The replay has the same hole: one recovery for the gap, and then a new beginning."""
    pair = Pair()
    pair.hear(pair.worker.publish(1))
    pair.worker.drop(2)
    pair.hear(pair.worker.publish(3))
    assert (pair.asked, pair.counts.lost, pair.sink.held) == ([0, 0], 1, {3})


def test_h13_a_restarted_worker_loses_its_credit():
    """H-13: number 0 again: what was known is cleared before the new batch counts; a repetition counts once."""
    pair = Pair()
    pair.hear(*[pair.worker.publish(block) for block in range(5)])
    pair.worker.restart()
    first = pair.worker.publish(7)
    pair.hear(first, first)
    assert pair.sink.held == {7}
    assert (pair.counts.lives, pair.counts.repeated, pair.follower.complete) == (1, 1, True)


def test_h13_a_restarted_worker_whose_first_batches_were_missed():
    """Heard first at number 2 of the new life: the two before are asked for from 0."""
    pair = Pair()
    pair.hear(*[pair.worker.publish(block) for block in range(5)])
    pair.worker.restart()
    pair.hear([pair.worker.publish(block) for block in (7, 8, 9)][2])
    assert (pair.sink.held, pair.follower.complete) == ({7, 8, 9}, True)


def test_h13_a_new_life_that_counted_past_the_old_number():
    """Nothing of it was heard until its number was higher: the last number heard has another payload now."""
    pair = Pair()
    pair.hear(*[pair.worker.publish(block) for block in range(3)])
    pair.worker.restart()
    messages = [pair.worker.publish(block) for block in range(20, 27)]
    pair.hear(messages[-1])
    assert pair.sink.held == set(range(20, 27))
    assert (pair.counts.lives, pair.asked) == (1, [0, 2, 0])


@pytest.mark.parametrize("published", [0, 1, 2])
def test_h13_a_new_life_is_found_by_asking_unprompted(published):
    """It has published less than was heard, or nothing: the replay does not know the last number heard."""
    pair = Pair()
    pair.hear(*[pair.worker.publish(block) for block in range(4)])
    pair.worker.restart()
    for block in range(published):
        pair.worker.publish(50 + block)
    pair.catch_up()
    assert pair.sink.held == {50 + block for block in range(published)}
    assert pair.follower.complete


def test_a_restart_after_a_single_batch_is_found_too():
    """The last number heard is 0, and so is the first to ask for."""
    pair = Pair()
    pair.hear(pair.worker.publish(1))
    pair.worker.restart()
    pair.worker.publish(2)
    pair.worker.publish(3)
    pair.catch_up()
    assert pair.sink.held == {2, 3}


def test_a_new_life_that_comes_to_just_the_next_number():
    """Its batches up to there were missed, so the numbers fit: that the connection broke is the one sign of it."""
    pair = Pair()
    pair.hear(pair.worker.publish(1))
    pair.worker.restart()
    pair.worker.publish(2)
    pair.broke = True
    pair.hear(pair.worker.publish(3))
    assert (pair.sink.held, pair.counts.lives) == ({2, 3}, 1)


def test_asking_unprompted_finds_a_lost_last_batch():
    """The batch before a silence may be the lost one: no later one would show it."""
    pair = Pair()
    pair.hear(pair.worker.publish(1))
    pair.worker.publish(2)
    pair.catch_up()
    assert pair.sink.held == {1, 2}
    assert pair.counts.gaps == 0


def test_what_is_published_during_a_replay_waits_for_its_end():
    """In whatever order, and the gap that shows then is asked for as well."""
    pair = Pair()
    messages = [pair.worker.publish(block) for block in range(8)]
    pair.hear(messages[0])
    pair.follower.hear(*messages[3])
    for number in (6, 4, 7):
        pair.follower.hear(*messages[number])
    assert pair.sink.held == {0}
    for message in messages[:4]:
        pair.follower.replayed(*message)
    pair.follower.replay_ended(whole=True)
    pair.answer()
    assert pair.sink.applied == [payload for _, payload in messages]


def test_a_replay_that_breaks_off_is_asked_for_the_rest():
    """What came of it counts; the question goes on from there."""
    pair = Pair()
    messages = [pair.worker.publish(block) for block in range(8)]
    pair.hear(messages[0])
    pair.follower.hear(*messages[7])
    for message in messages[:4]:
        pair.follower.replayed(*message)
    pair.follower.replay_ended(whole=False)
    assert pair.follower.asks == 3
    pair.answer()
    assert pair.sink.held == set(range(8))


def test_a_replay_with_a_hole_is_asked_again_from_the_hole_on():
    """A ROUTER drops what does not fit; each answer that brings something is worth another question."""
    pair = Pair()
    messages = [pair.worker.publish(block) for block in range(9)]
    pair.hear(messages[0])
    pair.follower.hear(*messages[8])
    for message in (messages[0], messages[1], messages[2], messages[6]):
        pair.follower.replayed(*message)
    assert pair.follower.asks == 2
    pair.answer()
    assert (pair.sink.held, pair.counts.lost) == (set(range(9)), 0)


def test_a_replay_socket_that_never_answers_costs_the_picture():
    """Nothing came at all: what is missing is lost, what was held back is the new beginning."""
    pair = Pair()
    messages = [pair.worker.publish(block) for block in range(6)]
    pair.hear(messages[0])
    pair.follower.hear(*messages[4])
    pair.follower.hear(*messages[5])
    pair.follower.replay_ended(whole=False)
    assert pair.follower.asks is None
    assert (pair.sink.held, pair.counts.lost, pair.follower.complete) == ({4, 5}, 1, False)


def test_a_failed_question_without_a_gap_changes_nothing():
    """Asked unprompted, and nobody there: what is known stays known."""
    pair = Pair()
    pair.hear(pair.worker.publish(1))
    pair.follower.catch_up()
    pair.follower.replay_ended(whole=False)
    assert (pair.sink.held, pair.follower.complete, pair.counts.lost) == ({1}, True, 0)


def test_starting_over_learns_the_whole_again():
    """After a failed beginning the replay may be there at last."""
    pair = Pair(can_ask=True)
    pair.hear(*[pair.worker.publish(block) for block in range(3)])
    pair.follower.start_over()
    assert pair.sink.held == set()
    pair.answer()
    assert (pair.sink.held, pair.follower.complete) == ({0, 1, 2}, True)


def test_without_a_replay_endpoint_a_stream_heard_from_its_start_is_complete():
    """And one joined later is not."""
    early, late = Pair(can_ask=False), Pair(can_ask=False)
    messages = [early.worker.publish(block) for block in range(3)]
    early.hear(*messages)
    late.hear(*messages[1:])
    assert [pair.follower.complete for pair in (early, late)] == [True, False]
    assert late.sink.held == {1, 2}


def test_a_repetition_of_long_ago_is_put_right_by_the_replay():
    """It is older than what is remembered, so it looks like a new life: the replay says what is true."""
    pair = Pair()
    messages = [pair.worker.publish(number % 50) for number in range(REMEMBERED + 10)]
    pair.hear(*messages)
    pair.hear(messages[0], messages[3])
    assert pair.sink.held == pair.worker.held
    assert pair.follower.complete
