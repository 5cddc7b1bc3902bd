"""One stream over real sockets, from our worker's publisher: caught up, repaired, restarted, and never in the way."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import zmq

from backends.events.wire import Cleared, Encoding, Removed, Stored
from gateway.events import stream as stream_module
from gateway.events.sockets import Sockets
from gateway.events.sources import Source
from gateway.events.stream import Stream, Turns
from router.blocks import chain, seed
from router.encoders import pack
from router.knowledge import Knowledge
from tests.backends.events.event_builders import running_publisher

MODEL = "m"
SIZE = 4


@dataclass
class Followed:
    """A stream and what it told."""

    stream: Stream
    knowledge: Knowledge

    def holds(self, *numbers: int) -> bool:
        """Exactly the blocks with these numbers."""
        return len(self.knowledge) == len(numbers) and all(self.knowledge.match(own(number)) for number in numbers)


def own(number: int) -> list[bytes]:
    return chain(seed(salt=None, model=MODEL), pack(tokens_of(number)), SIZE).blocks


def tokens_of(number: int) -> list[int]:
    return [number, 1, 2, 3]


def build_stored(*numbers: int) -> list[Stored]:
    """Each number a block of its own."""
    return [Stored([number], None, tokens_of(number), SIZE, None, [None]) for number in numbers]


@asynccontextmanager
async def following(source: Source, catch_up_seconds: float = 60.0) -> AsyncIterator[Followed]:
    """A stream that follows `source` until the end."""
    sockets, knowledge = Sockets(zmq), Knowledge(MODEL, SIZE)
    stream = Stream(
        source,
        sockets,
        Turns(),
        time.monotonic,
        catch_up_seconds=catch_up_seconds,
        apply=knowledge.apply,
        clear=knowledge.clear,
    )
    task = asyncio.create_task(stream.run())
    try:
        yield Followed(stream, knowledge)
        assert not task.done() or task.result() is None
        knowledge.check_integrity()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        sockets.close()


def source_of(publisher, topic: str = "") -> Source:
    return Source(publisher.config.endpoint, publisher.config.replay_endpoint, topic, 0)


def ports_of(source: Source) -> dict[str, str]:
    """To publish where another publisher did: only wildcards are bound."""
    return {
        "endpoint": f"tcp://*:{source.endpoint.rsplit(':', 1)[1]}",
        "replay_endpoint": f"tcp://*:{source.replay_endpoint.rsplit(':', 1)[1]}",
    }


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("replay_topic", [True, False])
async def test_a_late_joiner_catches_up_and_then_hears(encoding, replay_topic):
    """Either encoding, either framing of replays: what was before, and what comes after."""
    with running_publisher(encoding, replay_topic, topic="kv@w1") as publisher:
        publisher.publish(build_stored(1, 2))
        publisher.publish([Removed([1])])
        async with following(source_of(publisher, "kv@")) as followed:
            await until(lambda: followed.holds(2))
            assert followed.stream.follower.complete
            publisher.publish(build_stored(3))
            await until(lambda: followed.holds(2, 3))
            assert 0 <= followed.stream.lag_seconds < 5


async def test_a_subscription_finds_a_worker_that_starts_later():
    """Connected before anybody listens: the beginning is asked for when the first batch shows that it is missing."""
    with running_publisher() as publisher:
        source = source_of(publisher)
    async with following(source) as followed:
        with running_publisher(**ports_of(source)) as publisher:
            publisher.publish(build_stored(1))
            for number in range(2, 200):
                publisher.publish(build_stored(number))
                await asyncio.sleep(0.02)
                if followed.holds(*range(1, number + 1)):
                    break
            assert followed.stream.follower.complete


async def test_a_restarted_worker_is_forgotten_and_learned_anew():
    """The same endpoints, numbers from 0, the same count of batches as before: the broken connection tells."""
    with running_publisher() as publisher:
        source = source_of(publisher)
        async with following(source) as followed:
            publisher.publish(build_stored(1))
            await until(lambda: followed.holds(1))
            publisher.stop()
            with running_publisher(**ports_of(source)) as again:
                again.publish(build_stored(7))
                for number in range(8, 200):
                    again.publish(build_stored(number))
                    await asyncio.sleep(0.02)
                    if followed.holds(*range(7, number + 1)):
                        break
                assert followed.stream.follower.counts.lives == 1
                assert followed.stream.follower.complete


async def test_a_batch_that_cannot_be_read_is_counted_and_not_gone_by():
    """What it said is not known: whole again once the worker has cleared its cache."""
    with running_publisher() as publisher:
        async with following(source_of(publisher)) as followed:
            publisher.publish([Stored([1], None, [1], SIZE, None, [None])])
            publisher.publish(build_stored(2))
            await until(lambda: followed.holds(2))
            assert (followed.stream.bad_batches, followed.stream.unread) == (1, True)
            publisher.publish([Cleared()])
            await until(lambda: followed.holds())
            assert not followed.stream.unread


async def test_a_silent_stream_is_asked_unprompted():
    """Nothing heard for so long: the replay socket says whether something was lost, or that all is well."""
    with running_publisher() as publisher:
        async with following(source_of(publisher), catch_up_seconds=0.1) as followed:
            await until(followed.stream.caught_up.is_set)
            before = followed.stream.heard_at
            await until(lambda: followed.stream.heard_at > before)


async def test_a_replay_socket_that_nobody_answers_is_given_up_and_tried_again(monkeypatch):
    """The stream goes on without its beginning; once there is an answer, it has it."""
    monkeypatch.setattr(stream_module, "REPLAY_SECONDS", 0.2)
    monkeypatch.setattr(stream_module, "RETRY_SECONDS", 0.2)
    with running_publisher() as publisher:
        publisher.publish(build_stored(1))
        with zmq.Context() as context, context.socket(zmq.ROUTER) as deaf:
            port = deaf.bind_to_random_port("tcp://127.0.0.1")
            source = source_of(publisher)._replace(replay_endpoint=f"tcp://127.0.0.1:{port}")
            async with following(source) as followed:
                await until(followed.stream.caught_up.is_set)
                assert not followed.stream.follower.complete
                followed.stream.source = source_of(publisher)
                await until(lambda: followed.holds(1))
                assert followed.stream.follower.complete


async def test_what_comes_while_nobody_reads_does_not_keep_the_loop_busy():
    """A replay that is waited for in vain, and batches that wait for its end: the processor has nothing to do."""
    with running_publisher() as publisher, zmq.Context() as context, context.socket(zmq.ROUTER) as deaf:
        port = deaf.bind_to_random_port("tcp://127.0.0.1")
        source = source_of(publisher)._replace(replay_endpoint=f"tcp://127.0.0.1:{port}")
        async with following(source) as followed:
            for number in range(20):
                publisher.publish(build_stored(number))
                await asyncio.sleep(0.02)
            began = time.thread_time()
            await asyncio.sleep(0.4)
            assert time.thread_time() - began < 0.1
            assert not followed.stream.caught_up.is_set()


async def test_messages_that_are_no_batches_are_passed_over():
    """SGLang's load reports on the same topic, frames of another number."""
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher:
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        async with following(Source(f"tcp://127.0.0.1:{port}", None, "", 0)) as followed:
            for number in range(400):
                publisher.send_multipart([b"load", b"short", b"x"])
                publisher.send_multipart([b"alone"])
                publisher.send_multipart([b"", number.to_bytes(8, "big"), b"\xc1"])
                await asyncio.sleep(0.01)
                if followed.stream.bad_batches:
                    break
            assert followed.stream.bad_batches


async def test_a_long_replay_never_keeps_the_loop_for_long():
    """3,000 batches of 8 blocks to catch up with: everything arrives, and the loop turns all the while."""
    with running_publisher() as publisher:
        for start in range(0, 24_000, 8):
            publisher.publish(build_stored(*range(start, start + 8)))
        async with following(source_of(publisher)) as followed:
            longest = await _longest_turn(lambda: len(followed.knowledge) == 24_000)
            assert followed.stream.follower.complete
    assert longest < 0.05  # of processor time: the cores are shared with other tests


async def _longest_turn(done: Callable[[], bool]) -> float:
    """The longest time between two turns of the loop, of this thread's own work, until `done`."""
    gc.disable()  # the collector would go through everything that this test process holds
    try:
        return await _longest_until(done)
    finally:
        gc.enable()


async def _longest_until(done: Callable[[], bool]) -> float:
    longest, last = 0.0, time.thread_time()
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now
    return longest
