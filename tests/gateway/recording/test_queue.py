"""The queue between event loop and thread: bounded in requests and in blocks, and nobody waits to put."""

from __future__ import annotations

import time
from threading import Thread

from gateway.recording.queue import RecordQueue
from tests.gateway.recording.recording_builders import build_chain, build_served


def test_what_was_put_is_taken_in_order_and_once():
    """All of it together."""
    queue = RecordQueue()
    served = [build_served(build_chain(number)) for number in range(3)]
    assert all(map(queue.put, served))
    assert queue.take(0.0) == served
    assert queue.take(0.0) == []


def test_a_full_queue_takes_no_more_until_it_is_emptied():
    """So many requests."""
    queue = RecordQueue(most_requests=2)
    assert [queue.put(build_served(build_chain(1))) for _ in range(3)] == [True, True, False]
    queue.take(0.0)
    assert queue.put(build_served(build_chain(1)))


def test_long_prompts_fill_it_sooner():
    """So many blocks of both chains; one that is longer than the bound still comes through an empty queue."""
    queue = RecordQueue(most_blocks=10)
    long = build_served(build_chain(*range(9)))
    assert [queue.put(long), queue.put(long)] == [True, False]
    queue.take(0.0)
    short = build_served(build_chain(1, 2))
    assert [queue.put(short) for _ in range(3)] == [True, True, False]


def test_who_waits_is_woken_when_it_is_half_full_or_closed():
    """Long before the patience is over."""
    for wake in (lambda queue: [queue.put(build_served(build_chain(1))) for _ in range(2)], RecordQueue.close):
        queue, taken = RecordQueue(most_requests=4), []
        waiting = Thread(target=lambda queue=queue, taken=taken: taken.append(queue.take(60.0)), daemon=True)
        began = time.monotonic()
        waiting.start()
        wake(queue)
        waiting.join(30.0)
        assert len(taken) == 1
        assert time.monotonic() - began < 30.0


def test_a_closed_queue_takes_nothing_in():
    """What was there can still be taken."""
    queue = RecordQueue()
    queue.put(build_served(build_chain(1)))
    queue.close()
    assert queue.closed
    assert not queue.put(build_served(build_chain(1)))
    assert len(queue.take(60.0)) == 1
