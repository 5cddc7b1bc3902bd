"""One replica's view of the stream: how far it reads, how much is kept, what it passes over, what it counts."""

from __future__ import annotations

import pytest

from gateway.shared.link import Entry
from gateway.shared.stream import LATE_SECONDS, LEAST_ENTRIES, MOST_ENTRIES
from gateway.shared.wire import BATCH_BYTES, Ended, pack
from tests.gateway.shared.builders import KEY, Replica, build_batch


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
    """At an entry from after the catching up began."""
    replica = Replica([])
    replica.stream.set_clock(1000.0)
    replica.stream.hear(Entry(b"999000-0", None), late=True)
    assert not replica.stream.caught_up()
    replica.stream.hear(Entry(b"1000000-0", None), late=True)
    assert replica.stream.caught_up()


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


def test_own_news_that_somebody_changed_is_not_taken_for_ones_own():
    """Only what comes back byte for byte need not be read again."""
    one = Replica([])
    one.place("a", 1, 2)
    one.publish()
    honest = one.shared[-1]
    changed = bytes([*honest[:-1], honest[-1] ^ 1])
    one.stream.hear(Entry(b"1-0", changed), late=False)
    assert one.count("news_ignored_total", reason="forged") == 1
    assert len(one.stream._book) == 0
    one.stream.hear(Entry(b"2-0", honest), late=False)
    assert len(one.stream._book) == 1


def test_an_epoch_that_cannot_be_counted_on_ends_nothing():
    """Where there is no secret, anybody may say that it is the last one: batches go out all the same."""
    one = Replica([])
    one.stream.hear(Entry(b"1-0", pack(build_batch(epoch=0xFFFFFFFF), KEY)), late=False)
    one.stream.has_entries(100)
    one.stream.has_entries(0)
    one.place("a", 1)
    assert one.publish() > 0


def test_an_epoch_is_turned_once_for_each_reason():
    """Not with every batch from then on, which would tell every chain whole again."""
    one = Replica([])
    one.stream.has_entries(100)
    one.stream.has_entries(0)
    for number in range(6):
        one.place(str(number), number)
        one.publish()
        one.listen()
    assert one.stream._book.epoch == 1
