"""Replicas over one stream, without Redis: they believe the same, joiners too, and the stream stays bounded."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shared.stream import EPOCH_SECONDS
from router.settings import RouterSettings
from tests.gateway.shared.builders import FLEET, WORKERS, Replica, build_prompt, cached_blocks, waits


def build_replicas(count: int, **more: int) -> list[Replica]:
    shared: list[bytes] = []
    replicas = [Replica(shared, **more) for _ in range(count)]
    everybody_talks(replicas)
    return replicas


def everybody_talks(replicas: list[Replica]) -> None:
    for replica in replicas:
        replica.publish()
    for replica in replicas:
        replica.listen()


def test_the_next_turn_through_another_replica_finds_the_worker():
    """What one placed, all believe."""
    one, two, three = replicas = build_replicas(3)
    worker = one.place("a", 1, 2, 3, 4)
    everybody_talks(replicas)
    assert two.place("b", 1, 2, 3, 4, 5) == worker
    assert cached_blocks(three.router, worker, 1, 2, 3, 4) == 4


def test_queues_agree_everywhere():
    """Requests of all replicas wait in everybody's virtual queues, and leave them everywhere."""
    one, two, three = replicas = build_replicas(3)
    for number, replica in enumerate(replicas):
        replica.place(f"r{number}", *range(10 * number, 10 * number + 8))
    everybody_talks(replicas)
    assert waits(two.router, 0.0) == pytest.approx(waits(one.router, 0.0), rel=1e-5)
    assert waits(three.router, 0.0) == pytest.approx(waits(one.router, 0.0), rel=1e-5)
    assert sum(waits(one.router, 0.0).values()) > 0
    assert one.router.stats().in_flight == 3
    for number, replica in enumerate(replicas):
        replica.router.first_token(f"r{number}", 1.0)
        replica.router.finished(f"r{number}", 2.0)
    everybody_talks(replicas)
    assert [replica.router.stats().in_flight for replica in replicas] == [0, 0, 0]


def test_only_new_blocks_travel_whoever_told_the_others():
    """A conversation that wanders over the replicas is told once."""
    one, two = replicas = build_replicas(2)
    one.place("a", *range(100))
    everybody_talks(replicas)
    two.place("b", *range(102))
    assert two.publish() < 16 * 2 + 200


def test_a_retry_elsewhere_is_known_elsewhere():
    """The first worker's queue is empty again for everybody, and both are believed to have the prompt."""
    one, two = replicas = build_replicas(2)
    first = one.place("a", 1, 2, 3)
    second = one.place("a", 1, 2, 3, exclude=frozenset([first]))
    everybody_talks(replicas)
    wait = waits(two.router, 0.0)
    assert wait[first] == 0
    assert wait[second] > 0
    assert two.router.stats().in_flight == 1
    assert cached_blocks(two.router, second, 1, 2, 3) == cached_blocks(two.router, first, 1, 2, 3) == 3


def test_a_joiner_knows_what_the_others_know():
    """It reads the stream: directories from the placements, requests in flight, nothing that has ended."""
    one, two = replicas = build_replicas(2)
    worker = one.place("a", 1, 2, 3)
    two.place("b", 7, 8)
    two.router.finished("b", 1.0)
    everybody_talks(replicas)
    joiner = Replica(one.shared)
    joiner.listen()
    assert cached_blocks(joiner.router, worker, 1, 2, 3) == 3
    assert joiner.router.stats().in_flight == 1
    assert joiner.stream.others == 2


def test_the_requests_of_a_replica_that_died_are_forgotten():
    """It said nothing for some seconds while others lived."""
    one, two = replicas = build_replicas(2)
    one.place("a", 1)
    everybody_talks(replicas)
    two.now = 6.0
    two.stream.sweep()
    assert two.router.stats().in_flight == 0
    assert two.count("replicas_heard") == 0


def test_after_a_lost_batch_the_others_know_again_what_is_in_flight():
    """Nothing of the loss stays: ends that were lost are ends for all."""
    one, two = replicas = build_replicas(2)
    one.place("a", 1, 2)
    one.place("b", 3, 4)
    everybody_talks(replicas)
    one.router.finished("a", 1.0)
    one.publish(lost=True)
    worker = one.place("c", 5, 6)
    everybody_talks(replicas)
    assert two.router.stats().in_flight == 2
    assert cached_blocks(two.router, worker, 5, 6) == 2


def test_the_stream_may_be_flushed_at_any_time():
    """References to what was flushed are followed by who has heard it; a new epoch begins, so that joiners can."""
    one, two = replicas = build_replicas(2)
    worker = one.place("a", *range(8))
    one.stream.has_entries(100)
    everybody_talks(replicas)
    shared = one.shared
    del shared[:]
    for replica in replicas:
        replica.read = 0
    one.stream.has_entries(0)
    for number in range(3):  # the batch that turns still refers to what was before; from the next on all is told whole
        two.place(f"b{number}", *range(8), number)
        one.place(f"c{number}", *range(8), number)
        everybody_talks(replicas)
    assert two.count("news_unresolved_total") == 0
    joiner = Replica(shared)
    joiner.listen()
    assert cached_blocks(joiner.router, worker, *range(8)) == 8


def test_an_epoch_ends_with_its_bytes_or_its_time():
    """So that what a reference goes back to can still be read."""
    one, two = replicas = build_replicas(2, stream_bytes=60_000)
    for number in range(16):
        one.place(str(number), *range(100 * number, 100 * number + 100))
        everybody_talks(replicas)
    turned = one.stream._book.epoch
    assert turned >= 1
    one.now = two.now = EPOCH_SECONDS + 1
    one.place("last", 5)
    everybody_talks(replicas)
    one.place("very last", 6)
    everybody_talks(replicas)
    assert two.stream._book.epoch > turned


def test_b4_a_bound_on_requests_holds_over_three_replicas_that_hear_each_other():
    """B4: one hot key, factor 1.25: the fullest worker has at most 1.25 + 0.15 times the mean at any time."""
    settings = RouterSettings(policy="chwbl", chwbl_factor=1.25, chwbl_floor=1)
    replicas = [Replica([], settings=settings) for _ in range(3)]
    for replica in replicas[1:]:
        replica.shared = replicas[0].shared
    in_flight: Counter[str] = Counter()
    for number in range(240):
        in_flight[replicas[number % 3].place(str(number), 7)] += 1
        if number % 3 == 2:
            everybody_talks(replicas)
        if number > 60:
            assert max(in_flight.values()) / (in_flight.total() / len(WORKERS)) <= 1.25 + 0.15


def test_goodbye_is_heard():
    """A replica that drains leaves nothing behind."""
    one, two = replicas = build_replicas(2)
    one.place("a", 1)
    everybody_talks(replicas)
    one.shared.append(one.stream.goodbye())
    two.listen()
    assert two.router.stats().in_flight == 0
    assert two.stream.others == 0


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["place", "end", "publish", "lose", "listen"]), st.integers(0, 5)),
    max_size=60,
)


@settings(max_examples=60)
@given(steps)
def test_in_the_end_all_believe_the_same(steps):
    """Whatever was placed, ended, lost and heard in whatever order: when the stream is read, all agree."""
    replicas, live = build_replicas(3), {0: set(), 1: set(), 2: set()}
    for number, (who, what, prompt) in enumerate(steps):
        replica = replicas[who]
        if what == "place":
            replica.place(f"{who}-{number}", *range(prompt), who)
            live[who].add(f"{who}-{number}")
        elif what == "end" and live[who]:
            replica.router.finished(live[who].pop(), 0.0)
        elif what in ("publish", "lose"):
            replica.publish(lost=what == "lose")
        elif what == "listen":
            replica.listen()
    everybody_talks(replicas)
    everybody_talks(replicas)
    in_flight = sum(len(requests) for requests in live.values())
    assert [replica.router.stats().in_flight for replica in replicas] == [in_flight] * 3
    beliefs = [
        [replica.router.peek(build_prompt(0, 1, 2, 3, 4, who), FLEET, 0.0).candidates for who in range(3)]
        for replica in replicas
    ]
    cached = [[[each.cached_tokens for each in found] for found in belief] for belief in beliefs]
    assert cached[0] == cached[1] == cached[2]
