"""Hearing the others: directories and queues follow their news, and nothing of a silent replica stays."""

from __future__ import annotations

import pytest

from gateway.shared.peers import MOST_REPLICAS, SILENT_SECONDS, Heard
from gateway.shared.wire import Ended, Started
from tests.gateway.shared.builders import (
    Listener,
    build_batch,
    build_chain,
    build_placed,
    cached_blocks,
    value_of,
    waits,
)


def test_a_placement_is_in_the_directory_and_in_the_queue():
    """As if it had been placed here."""
    listener = Listener()
    listener.hear(build_batch(build_placed(blocks=build_chain(1, 2, 3), prefill_seconds=0.5)))
    assert cached_blocks(listener.router, "w1", 1, 2, 3, 4) == 3
    assert waits(listener.router, 0.0) == {"w1": pytest.approx(0.5), "w2": 0.0, "w3": 0.0}
    assert value_of(listener.metrics, "news_heard_total", kind="placed") == 1


def test_a_first_token_and_an_end_are_followed():
    """The queue empties at the first token, the count of requests at the end."""
    listener = Listener()
    listener.hear(build_batch(build_placed(1)))
    listener.hear(build_batch(Started(1), sequence=2))
    assert waits(listener.router, 0.0)["w1"] == 0.0
    assert listener.router.stats().in_flight == 1
    listener.hear(build_batch(Ended(1), sequence=3))
    assert listener.router.stats().in_flight == 0


def test_two_replicas_may_use_the_same_numbers():
    """A number belongs to its replica."""
    listener = Listener()
    listener.hear(build_batch(build_placed(1), replica=b"replica1"))
    listener.hear(build_batch(build_placed(1), replica=b"replica2"))
    assert listener.router.stats().in_flight == 2
    listener.hear(build_batch(Ended(1), replica=b"replica1", sequence=2))
    assert listener.router.stats().in_flight == 1


def test_own_news_changes_the_book_and_nothing_else():
    """What comes back from the stream is known to everybody from now on; it was placed here already."""
    listener, chain = Listener(), build_chain(1, 2)
    listener.hear(build_batch(build_placed(blocks=chain), replica=b"listener"))
    assert listener.router.stats().in_flight == 0
    assert listener.book.known_blocks(chain) == 2


def test_a_silent_replica_is_forgotten_with_its_requests():
    """Killed: after a few seconds nothing of it waits in anybody's queue; its directory entries stay true."""
    listener = Listener()
    listener.hear(build_batch(build_placed(blocks=build_chain(1)), replica=b"replica1"), now=0.0)
    listener.hear(build_batch(build_placed(), replica=b"replica2"), now=4.0)
    listener.peers.sweep(SILENT_SECONDS + 0.1)
    assert len(listener.peers) == 1
    assert listener.router.stats().in_flight == 1
    assert cached_blocks(listener.router, "w1", 1) == 1


def test_a_sign_of_life_is_enough():
    """A replica without traffic is not silent."""
    listener = Listener()
    listener.hear(build_batch(build_placed()), now=0.0)
    listener.hear(build_batch(sequence=2), now=4.0)
    listener.peers.sweep(SILENT_SECONDS + 0.1)
    assert listener.router.stats().in_flight == 1


def test_a_replica_that_leaves_is_forgotten_at_once():
    """Its last batch says so."""
    listener = Listener()
    listener.hear(build_batch(build_placed()))
    listener.hear(build_batch(sequence=2, leaving=True))
    assert len(listener.peers) == 0
    assert listener.router.stats().in_flight == 0


@pytest.mark.parametrize("more", [{"sequence": 2, "afresh": True}, {"sequence": 5}])
def test_after_a_loss_only_what_is_told_again_counts(more):
    """An end may have been lost: told afresh, or after a gap in the numbers, old requests are forgotten."""
    listener = Listener()
    listener.hear(build_batch(build_placed(1), build_placed(2)))
    listener.hear(build_batch(build_placed(2), **more))
    assert listener.router.stats().in_flight == 1


def test_a_batch_that_comes_again_is_not_applied():
    """Who can only write to Redis cannot replay old news either."""
    listener = Listener()
    listener.hear(build_batch(build_placed(1)))
    listener.hear(build_batch(Ended(1), sequence=2))
    listener.hear(build_batch(build_placed(1)))
    assert listener.router.stats().in_flight == 0
    assert value_of(listener.metrics, "news_ignored_total", reason="repeated") == 1


def test_news_of_a_model_that_is_read_otherwise_is_ignored_and_counted():
    """Another tokeniser, template or block size: its blocks mean nothing here, and its load is not this model's."""
    listener = Listener()
    listener.hear(build_batch(build_placed(model=b"another-", blocks=build_chain(1))))
    assert listener.router.stats().in_flight == 0
    assert cached_blocks(listener.router, "w1", 1) == 0
    assert value_of(listener.metrics, "news_ignored_total", reason="model") == 1


def test_news_of_a_worker_that_is_not_in_the_fleet_is_ignored_and_counted():
    """No state is made for a name that only Redis has said."""
    listener = Listener()
    listener.hear(build_batch(build_placed(worker="w9")))
    assert {each.worker for each in listener.router.stats().workers} == {"w1", "w2", "w3"}
    assert value_of(listener.metrics, "news_ignored_total", reason="worker") == 1


def test_a_chain_that_cannot_be_rebuilt_still_counts_as_load():
    """The worker is busy with it whatever it is."""
    listener = Listener()
    listener.hear(build_batch(build_placed(known=b"?" * 16, blocks=build_chain(7))))
    assert waits(listener.router, 0.0)["w1"] > 0
    assert value_of(listener.metrics, "news_unresolved_total") == 1
    assert listener.router.stats().workers[0].directory_blocks == 0


def test_a_joiner_does_not_believe_what_a_worker_had_before_it_restarted():
    """Placements from before the start of the worker's process count for nothing in its directory."""
    chain = build_chain(1, 2)
    for started_at, expected in ((990.0, 0), (970.0, 2), (None, 2)):
        listener = Listener(started_at=started_at)
        listener.hear(build_batch(build_placed(blocks=chain)), Heard(at=980.0, age_seconds=20.0), now=1000.0)
        assert cached_blocks(listener.router, "w1", 1, 2) == expected


def test_a_joiner_takes_requests_as_old_as_they_are():
    """Half of the prefill is over, for the joiner too."""
    listener = Listener()
    batch = build_batch(build_placed(prefill_seconds=4.0, age_seconds=1.0))
    listener.hear(batch, Heard(at=980.0, age_seconds=1.0), now=50.0)
    assert waits(listener.router, 50.0)["w1"] == pytest.approx(2.0)


def test_a_crowd_of_made_up_replicas_is_bounded():
    """Where there is no secret, identities cost nothing."""
    listener = Listener()
    for number in range(MOST_REPLICAS + 10):
        listener.peers.hear(build_batch(replica=number.to_bytes(8, "big")), Heard(1000.0, 0.0), 0.0)
    assert len(listener.peers) == MOST_REPLICAS


def test_news_that_waited_while_redis_was_away_says_nothing_of_a_worker_that_restarted_since():
    """A placement told 100 s late, heard live; the worker's process began between."""
    chain = build_chain(1, 2)
    for started_at, expected in ((950.0, 0), (850.0, 2), (1002.0, 0)):
        listener = Listener(started_at=started_at)
        listener.hear(build_batch(build_placed(blocks=chain, age_seconds=100.0)), now=1000.0)
        assert cached_blocks(listener.router, "w1", 1, 2) == expected
        assert listener.router.stats().in_flight == 1


def test_news_of_the_moment_counts_whatever_a_workers_clock_says():
    """A worker whose clock is ahead says that it starts tomorrow."""
    listener = Listener(started_at=9999.0)
    listener.hear(build_batch(build_placed(blocks=build_chain(1, 2), age_seconds=0.004)))
    assert cached_blocks(listener.router, "w1", 1, 2) == 2
