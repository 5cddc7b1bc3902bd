"""A consumer that knows only the wire follows an engine over real sockets, and ends with exactly its cached blocks."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from backends.accounts import EngineStats
from backends.engine import Engine
from backends.events.publisher import EventPublisher
from backends.events.service import EventService
from backends.events.wire import Encoding
from backends.simulated import SimulatedRunner, Timing
from tests.backends.core_builders import ManualClock, build_config, build_request, run_to_end
from tests.backends.events.consumer import Picture, Subscriber
from tests.backends.events.event_builders import build_config as build_events_config

HEADS = [[(head * 7 + index) % 50 for index in range(24)] for head in range(12)]
SALTS = (None, None, None, "a", "b")


@dataclass
class Followed:
    """An engine, its events, and who listens."""

    engine: Engine
    events: EventService
    subscriber: Subscriber

    def step(self) -> list:
        """One step, told before anybody hears of it."""
        deltas = self.engine.step()
        self.tell()
        return deltas

    def tell(self) -> None:
        self.events.before(ignore)(self.engine.stats())

    def settle(self) -> None:
        """Wait until the consumer has everything."""
        deadline = time.monotonic() + 20
        while self.subscriber.picture.hashes != self.truth():
            assert time.monotonic() < deadline, "the consumer never got there"
            if not self.subscriber.poll(20):
                self.subscriber.catch_up()  # the last batch may be one that it never got

    def truth(self) -> set[int]:
        """The engine's own cached blocks."""
        pool = self.engine.pool
        keys = filter(None, map(pool.key_of, range(self.engine.config.num_blocks)))
        return {int.from_bytes(key.digest[-8:], "big") for key in keys}


def ignore(stats: EngineStats) -> None:
    """Nobody watches."""


@contextmanager
def following(encoding: Encoding = Encoding.MAP, **changes) -> Iterator[Followed]:
    """A small engine whose events a consumer follows from the first one on."""
    publisher = EventPublisher(build_events_config(), encoding=encoding)
    events = EventService(publisher)
    events.start()
    engine = Engine(
        build_config(**{"num_blocks": 49, "max_sequences": 4, **changes}),
        SimulatedRunner(Timing(), time.sleep),
        None,
        ManualClock(),
        journal=events.journal,
    )
    subscriber = Subscriber(events.config.endpoint, events.config.replay_endpoint, Picture())
    try:
        yield Followed(engine, events, subscriber)
    finally:
        subscriber.close()
        events.stop()


def random_prompt(generator: random.Random) -> list[int]:
    """A shared head, or a piece of one, and a tail of its own."""
    head = generator.choice(HEADS)
    return head[: generator.randint(1, len(head))] + [generator.randrange(200) for _ in range(generator.randint(0, 12))]


def run_random(followed: Followed, generator: random.Random, requests: int, *, deaf: bool = False) -> None:
    """Requests that come while others run; some are given up, and now and then everything is forgotten."""
    for number in range(requests):
        prompt, salt = random_prompt(generator), generator.choice(SALTS)
        followed.engine.add(build_request(str(number), prompt, cache_salt=salt, max_tokens=generator.randint(1, 6)))
        for _ in range(generator.randint(0, 4)):
            followed.step()
        if generator.random() < 0.05:
            followed.engine.abort(str(number))
        if generator.random() < 0.01:
            followed.engine.reset_prefix_cache()
            followed.tell()
        if number % 50 == 0 and not deaf:
            followed.subscriber.poll()
    while followed.engine.has_work:
        followed.step()


@pytest.mark.parametrize(("encoding", "requests"), [(Encoding.MAP, 10_000), (Encoding.ARRAY, 1_000)])
def test_a_consumer_ends_with_exactly_the_cached_blocks(encoding, requests):
    """10⁴ random requests on a pool that evicts all the time."""
    generator = random.Random(1)
    with following(encoding) as followed:
        run_random(followed, generator, requests)
        followed.settle()
        assert len(followed.truth()) > 30
        assert_predicts(followed, generator)


def assert_predicts(followed: Followed, generator: random.Random) -> None:
    """What the consumer expects a prompt to hit is what it hits."""
    for number in range(50):
        prompt, salt = random_prompt(generator), generator.choice(SALTS)
        followed.settle()
        expected = followed.subscriber.picture.cached_tokens(prompt, salt)
        followed.engine.add(build_request(f"last {number}", prompt, cache_salt=salt, max_tokens=1))
        delta = followed.step()[-1]
        assert delta.cached_tokens == expected
        while followed.engine.has_work:
            followed.step()


def test_a_consumer_that_comes_late_asks_for_what_it_missed():
    """It knows nothing of the first half, and repairs it from the replay socket."""
    generator = random.Random(2)
    with following() as followed:
        followed.subscriber.close()
        run_random(followed, generator, 200, deaf=True)
        config = followed.events.config
        followed.subscriber = Subscriber(config.endpoint, config.replay_endpoint)
        followed.subscriber.catch_up()
        assert followed.subscriber.picture.hashes == followed.truth()
        run_random(followed, random.Random(3), 100)
        followed.settle()


def test_messages_that_get_lost_are_repaired():
    """Every tenth batch is dropped on the way: gaps are noticed by their numbers, and filled."""
    with following() as followed:
        follower = followed.subscriber.follower
        hear, lost = follower.hear, []

        def hear_some(sequence, payload, missing):
            if sequence % 10 == 5 and sequence not in lost:
                lost.append(sequence)
                return
            hear(sequence, payload, missing)

        follower.hear = hear_some
        run_random(followed, random.Random(4), 300)
        followed.settle()
        assert len(lost) > 10
        assert follower.repaired >= len(lost) - 1


def test_a_reset_is_told_at_once():
    """Case H-09, trap 14: the next batch is AllBlocksCleared; a refused reset tells nothing."""
    with following() as followed:
        followed.engine.add(build_request("a", range(20), max_tokens=4))
        followed.step()
        assert not followed.engine.reset_prefix_cache()
        followed.tell()
        followed.settle()
        assert followed.truth()
        run_to_end(followed.engine)
        assert followed.engine.reset_prefix_cache()
        followed.tell()
        followed.settle()
        assert not followed.subscriber.picture.hashes


def test_a_copy_that_goes_is_not_told():
    """Trap 9: two prefills of one prompt are two blocks of one name; removed is told with the last one."""
    with following(share_in_flight=False) as followed:
        for name in "ab":
            followed.engine.add(build_request(name, range(8), max_tokens=1))
        while followed.engine.has_work:
            followed.step()
        pool = followed.engine.pool
        copies = [block_id for block_id in range(49) if pool.key_of(block_id) is not None]
        assert len(copies) == 4
        assert len(followed.truth()) == 2
        pool.evict(copies[:2])
        followed.tell()
        followed.settle()
        assert len(followed.truth()) == 2
        pool.evict(copies[2:])
        followed.tell()
        followed.settle()
        assert not followed.truth()
