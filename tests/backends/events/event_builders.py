"""Publishers on free ports, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backends.events.config import EventsConfig
from backends.events.publisher import EventPublisher
from backends.events.wire import Encoding, Removed

FREE_PORT = "tcp://127.0.0.1:*"


def build_config(**changes: Any) -> EventsConfig:
    """Events on free ports of this host."""
    settings = {"enable_kv_cache_events": True, "endpoint": FREE_PORT, "replay_endpoint": FREE_PORT, **changes}
    return EventsConfig(**settings)


@contextmanager
def running_publisher(encoding: Encoding = Encoding.MAP, replay_topic: bool = True, **changes: Any) -> Iterator[Any]:
    """A started publisher, ended at the end."""
    publisher = EventPublisher(build_config(**changes), encoding=encoding, replay_topic=replay_topic)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()


def publish_removals(publisher: EventPublisher, *numbers: int) -> None:
    """A batch for each number, that removes the block of this number."""
    for number in numbers:
        publisher.publish([Removed([number])])
