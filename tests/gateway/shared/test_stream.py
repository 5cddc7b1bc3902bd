"""Replicas over one stream, without Redis: they believe the same, joiners too, and the stream stays bounded."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shared.link import ENTRIES_PER_PAGE, Entry
from gateway.shared.stream import EPOCH_SECONDS, LATE_SECONDS, LEAST_ENTRIES, MOST_ENTRIES
from gateway.shared.wire import BATCH_BYTES, Ended, pack
from tests.gateway.shared.builders import FLEET, KEY, Replica, build_batch, build_prompt, cached_blocks, waits


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


def test_the_bound_in_entries_follows_the_bytes():
    """Large batches: fewer entries; small ones: more; within reason."""
    few, many = Replica([], stream_bytes=2**20), Replica([], stream_bytes=2**20)
    large = pack(build_batch(*[Ended(number) for number in range(2000)]), KEY)
    small = pack(build_batch(), KEY)
    for number in range(300):
        few.stream.hear(Entry(b"%d-0" % number, large), late=False)
        many.stream.hear(Entry(b"%d-0" % number, small), late=False)
    assert few.stream.keep_entries == LEAST_ENTRIES
    assert many.stream.keep_entries == pytest.approx(2**20 / (len(small) + 48), rel=0.05)
    assert many.stream.keep_entries < MOST_ENTRIES


def test_a_joiner_reads_back_so_far_and_no_further():
    """Half an hour; and after a gap it goes on where it was."""
    replica = Replica([])
    replica.stream.set_clock(1_000_000.0)
    assert replica.stream.after == b"%d-0" % ((1_000_000 - LATE_SECONDS) * 1000)
    replica.stream.hear(Entry(b"999999000-5", None), late=True)
    replica.stream.set_clock(1_000_000.0)
    assert replica.stream.after == b"999999000-5"


def test_catching_up_ends_at_the_present_even_if_news_never_stops():
    """A page that is not full, or an entry from after the catching up began."""
    replica = Replica([])
    replica.stream.set_clock(1000.0)
    replica.stream.hear(Entry(b"999000-0", None), late=True)
    assert replica.stream.caught_up(ENTRIES_PER_PAGE - 1)
    assert not replica.stream.caught_up(ENTRIES_PER_PAGE)
    replica.stream.hear(Entry(b"1000000-0", None), late=True)
    assert replica.stream.caught_up(ENTRIES_PER_PAGE)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "malformed"),
        (b"", "malformed"),
        (b"\x80\x04\x95" + b"pickle" * 20, "version"),
        (b"\x01" * (BATCH_BYTES + 1), "oversized"),
        (b"\x01" * 100, "forged"),
        (pack(build_batch(), b"another key"), "forged"),
    ],
)
def test_whatever_stands_in_redis_is_counted_and_passed_over(value, reason):
    """And the next entry is heard."""
    one = Replica([])
    one.stream.hear(Entry(b"1-0", value), late=False)
    assert one.count("news_ignored_total", reason=reason) == 1
    one.stream.hear(Entry(b"2-0", pack(build_batch(), KEY)), late=False)
    assert one.stream.others == 1
    assert one.stream.after == b"2-0"


def test_own_batches_tell_how_late_the_others_hear():
    """From making a batch to reading it back."""
    one = Replica([])
    one.place("a", 1)
    one.publish()
    one.now = 0.004
    one.listen()
    assert one.count("news_lag_seconds_count") == 1
    assert one.count("news_lag_seconds_sum") == pytest.approx(0.004)


def test_a_replica_whose_own_news_does_not_come_back_is_deaf():
    """It reads another stream than it writes: it starts over. A batch that was lost between two others is no sign."""
    one = Replica([])
    one.publish()
    one.now = 4.0
    assert not one.stream.deaf()
    one.now = 6.0
    assert one.stream.deaf()
    one.listen()
    assert not one.stream.deaf()
    one.place("a", 1)
    one.publish()
    lost = one.shared.pop()
    one.now = 7.0
    one.place("b", 2)
    one.publish()
    one.listen()
    one.now = 60.0
    assert lost not in one.shared
    assert not one.stream.deaf()


def test_an_id_from_the_future_is_started_over_from():
    """A Redis that was restored, or whose clock was set back, would never say anything after it."""
    replica = Replica([])
    replica.stream.hear(Entry(b"2000000000-0", None), late=False)
    replica.stream.set_clock(1_000_000.0)
    assert replica.stream.after == b"%d-0" % ((1_000_000 - LATE_SECONDS) * 1000)


def test_what_is_published_and_dropped_is_counted():
    """By kind, and bytes both ways."""
    one = Replica([])
    one.place("a", 1)
    one.router.first_token("a", 0.1)
    one.router.finished("a", 0.2)
    size = one.publish()
    one.listen()
    assert [one.count("news_published_total", kind=kind) for kind in ("placed", "first_token", "ended")] == [1, 1, 1]
    assert one.count("news_bytes_total", direction="out") == one.count("news_bytes_total", direction="in") == size
    one.outbox.dropped = 3
    one.stream.sweep()
    assert one.count("news_dropped_total") == 3


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
