"""Events over real ZMQ sockets: numbers, topics, replays in both framings, gaps, and who binds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import contextmanager

import msgspec
import pytest
import zmq

from backends.events.publisher import EventPublisher, EventsError, binds
from backends.events.wire import REPLAY_END, Encoding, Removed
from tests.backends.events.consumer import IncompleteError, Subscriber
from tests.backends.events.event_builders import FREE_PORT, build_config, publish_removals, running_publisher


@contextmanager
def socket(kind: int, endpoint: str, topic: bytes = b""):
    """A client's socket."""
    context = zmq.Context()
    opened = context.socket(kind)
    if kind == zmq.SUB:
        opened.setsockopt(zmq.SUBSCRIBE, topic)
    opened.connect(endpoint)
    try:
        yield opened
    finally:
        context.destroy(linger=0)


def receive(opened: zmq.Socket) -> list[bytes]:
    assert opened.poll(10_000), "nothing came"
    return opened.recv_multipart()


MARK = 1 << 40


def joined(publisher: EventPublisher, subscriber: zmq.Socket) -> int:
    """Publish until the subscriber hears, for subscribing takes its time; the number of the last batch it got."""
    deadline = time.monotonic() + 20
    while not subscriber.poll(20):
        assert time.monotonic() < deadline, "the subscriber never joined"
        publish_removals(publisher, 1)
    publish_removals(publisher, MARK)
    while True:
        _, number, payload = receive(subscriber)
        if MARK in msgspec.msgpack.decode(payload)[1][0]["block_hashes"]:
            return int.from_bytes(number, "big")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.005)


def replayed(publisher: EventPublisher, first: int) -> list[list[bytes]]:
    """Every answer of the replay socket, the end mark too."""
    answers: list[list[bytes]] = []
    with socket(zmq.DEALER, publisher.config.replay_endpoint) as asker:
        asker.send_multipart([b"", first.to_bytes(8, "big")])
        while not answers or REPLAY_END not in answers[-1]:
            answers.append(receive(asker))
    return answers


def test_batches_are_numbered_one_after_the_other():
    """Topic, number, payload; the payload is a batch of [time, events, rank]."""
    with running_publisher(topic="kv@here") as publisher, socket(zmq.SUB, publisher.config.endpoint) as subscriber:
        last = joined(publisher, subscriber)
        publish_removals(publisher, 70, 71)
        for number in (70, 71):
            last += 1
            topic, sequence, payload = receive(subscriber)
            assert (topic, int.from_bytes(sequence, "big")) == (b"kv@here", last)
            timestamp, events, rank = msgspec.msgpack.decode(payload)
            assert abs(timestamp - time.time()) < 60
            assert events == [{"type": "BlockRemoved", "block_hashes": [number], "medium": "GPU", "group_idx": 0}]
            assert rank == 0


def test_numbers_start_at_0():
    """A router tells a restart by it."""
    with running_publisher() as publisher:
        publish_removals(publisher, 1, 2, 3)
        assert [int.from_bytes(answer[2], "big") for answer in replayed(publisher, 0)[:-1]] == [0, 1, 2]


@pytest.mark.parametrize("replay_topic", [True, False])
def test_a_replay_repeats_from_a_number_on_and_ends(replay_topic):
    """Both framings: with the topic as vLLM from 0.26, without as before."""
    with running_publisher(replay_topic=replay_topic, topic="t", encoding=Encoding.ARRAY) as publisher:
        publish_removals(publisher, *range(5))
        *answers, end = replayed(publisher, 3)
    head = [b"", b"t"] if replay_topic else [b""]
    assert [answer[:-1] for answer in answers] == [[*head, number.to_bytes(8, "big")] for number in (3, 4)]
    assert msgspec.msgpack.decode(answers[0][-1])[1] == [["BlockRemoved", [3], "GPU", 0]]
    assert end == [b"", b"", REPLAY_END, b""] if replay_topic else [b"", REPLAY_END, b""]


def test_only_so_many_batches_are_kept():
    """`buffer_steps` bounds the memory."""
    with running_publisher(buffer_steps=3) as publisher:
        publish_removals(publisher, *range(10))
        until(lambda: replayed(publisher, 0)[-2][2][-1] == 9)
        assert [answer[2][-1] for answer in replayed(publisher, 0)[:-1]] == [7, 8, 9]


def test_a_whole_buffer_is_replayed():
    """Thousands of batches, more than ZMQ's own high-water mark."""
    with running_publisher(buffer_steps=5000) as publisher:
        publish_removals(publisher, *range(5000))
        assert len(replayed(publisher, 0)) == 5001


def test_a_malformed_replay_request_harms_nobody():
    """It gets no answer, and the next one does."""
    with running_publisher() as publisher:
        publish_removals(publisher, 1)
        with socket(zmq.DEALER, publisher.config.replay_endpoint) as asker:
            for request in ([b""], [b"", b"short"], [b"x", bytes(8)], [b"", bytes(8), b"more"]):
                asker.send_multipart(request)
            assert len(replayed(publisher, 0)) == 2
            assert not asker.poll(0)


def test_a_late_joiner_is_repaired_by_a_replay():
    """What was published before anybody listened is asked for again; nothing is applied twice."""
    with running_publisher() as publisher:
        publish_removals(publisher, *range(20))
        subscriber = Subscriber(publisher.config.endpoint, publisher.config.replay_endpoint)
        try:
            last = joined(publisher, subscriber.socket)  # these went past it
            publish_removals(publisher, 1)
            until(lambda: subscriber.poll(100))
            assert last >= 20
            assert subscriber.follower.expected == last + 2
            assert subscriber.follower.repaired == last + 1
        finally:
            subscriber.close()


def test_what_a_slow_subscriber_lost_is_repaired():
    """Trap 15: beyond the high-water mark PUB drops without a word; the next number tells, the replay has it all."""
    with running_publisher(hwm=2) as publisher:
        subscriber = Subscriber(publisher.config.endpoint, publisher.config.replay_endpoint, hwm=1)
        try:
            before = joined(publisher, subscriber.socket) + 1  # these went past the follower
            for _ in range(600):
                publisher.publish([Removed(list(range(1 << 33, (1 << 33) + 2000)))])  # 18 KB: more than buffers hold
            until(lambda: len(replayed(publisher, 600)) > 1)  # all were sent, whoever got them
            until(lambda: not subscriber.poll(50))
            publish_removals(publisher, 7)
            until(lambda: subscriber.poll(50))
            assert subscriber.follower.expected == int.from_bytes(replayed(publisher, 600)[-2][2], "big") + 1
            assert subscriber.follower.repaired > before + 50
        finally:
            subscriber.close()


def test_a_gap_that_is_too_old_is_noticed():
    """With the batches gone from the buffer the picture is worthless, and the consumer says so."""
    with running_publisher(buffer_steps=2) as publisher:
        subscriber = Subscriber(publisher.config.endpoint, publisher.config.replay_endpoint)
        try:
            joined(publisher, subscriber.socket)
            publish_removals(publisher, *range(5))
            with pytest.raises(IncompleteError):
                until(lambda: subscriber.poll(100))
        finally:
            subscriber.close()


def test_a_batch_that_finds_no_room_leaves_a_gap():
    """`max_queue_size`: dropped, counted and noticed by its number; nothing waits."""
    publisher = EventPublisher(build_config(max_queue_size=2))
    publish_removals(publisher, *range(4))  # not started: nobody sends
    assert publisher.dropped == 2
    publisher.start()
    try:
        until(lambda: len(replayed(publisher, 0)) == 3)
        publish_removals(publisher, 9)
        until(lambda: [answer[2][-1] for answer in replayed(publisher, 0)[:-1]] == [0, 1, 4])
    finally:
        publisher.stop()


def test_a_subscriber_hears_only_its_topic():
    """ZMQ filters by the topic's beginning."""
    with running_publisher(topic="kv@a") as publisher, socket(zmq.SUB, publisher.config.endpoint) as subscriber:
        joined(publisher, subscriber)
        with socket(zmq.SUB, publisher.config.endpoint, topic=b"kv@b") as other:
            publish_removals(publisher, *range(3))
            assert [receive(subscriber)[0] for _ in range(3)] == [b"kv@a"] * 3
            assert not other.poll(50)


def test_what_was_published_leaves_before_the_end():
    """A worker that drains sends its last events."""
    with running_publisher() as publisher, socket(zmq.SUB, publisher.config.endpoint) as subscriber:
        last = joined(publisher, subscriber)
        publish_removals(publisher, *range(100))
        publisher.stop()
        numbers = [int.from_bytes(receive(subscriber)[1], "big") for _ in range(100)]
        assert numbers == list(range(last + 1, last + 101))


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://*:5557", True),
        ("tcp://[::]:5557", True),
        ("ipc:///run/kv.ipc", True),
        ("inproc://kv", True),
        ("tcp://router:5557", False),
        ("tcp://10.0.0.1:5557", False),
    ],
)
def test_who_binds_is_vllms_rule(endpoint, expected):
    """Wildcards and local endpoints are bound, others connected to."""
    assert binds(endpoint) is expected


def test_an_endpoint_with_a_host_is_connected_to(tmp_path):
    """The router binds then, as in llm-d's central mode."""
    context = zmq.Context()
    router = context.socket(zmq.SUB)
    router.setsockopt(zmq.SUBSCRIBE, b"")
    port = router.bind_to_random_port("tcp://127.0.0.1")
    try:
        with running_publisher(endpoint=f"tcp://127.0.0.1:{port}", replay_endpoint=None) as publisher:
            joined(publisher, router)
    finally:
        context.destroy(linger=0)


def test_ipc_endpoints_work(tmp_path):
    """Also when the file of a process that was killed is still there."""
    path = tmp_path / "kv.ipc"
    path.touch()
    with running_publisher(endpoint=f"ipc://{path}", replay_endpoint=f"ipc://{tmp_path}/r.ipc") as publisher:
        with socket(zmq.SUB, f"ipc://{path}") as subscriber:
            joined(publisher, subscriber)
        assert replayed(publisher, 0)


def test_a_free_port_is_named():
    """A port of * turns into the one that was taken."""
    with running_publisher() as publisher:
        assert publisher.config.endpoint.startswith("tcp://127.0.0.1:")
        assert publisher.config.endpoint != FREE_PORT != publisher.config.replay_endpoint


def test_a_taken_port_is_an_error_that_names_it():
    """The message says which endpoint, and what may be the reason."""
    with running_publisher() as publisher:
        port = publisher.config.endpoint.rsplit(":", 1)[1]
        second = EventPublisher(build_config(endpoint=FREE_PORT, replay_endpoint=f"tcp://127.0.0.1:{port}"))
        with pytest.raises(EventsError, match=rf"cannot bind tcp://127.0.0.1:{port}: .*another worker"):
            second.start()
        second.stop()


def test_without_pyzmq_the_error_says_what_to_install(monkeypatch):
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "zmq", None)
    publisher = EventPublisher(build_config())
    with pytest.raises(EventsError, match=r"pip install 'homing\[events\]'"):
        publisher.start()
    publisher.stop()
