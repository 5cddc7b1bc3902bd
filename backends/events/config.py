"""`--kv-events-config`: vLLM's JSON with vLLM's names, checked field by field."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import msgspec

from router.core import Json

ZMQ = "zmq"


@dataclass(frozen=True, slots=True)
class EventsConfig:
    """vLLM's KVEventsConfig, in its order. `buffer_steps` batches are kept for replays, at most `max_queue_size` wait.

    `hwm` is ZMQ's high-water mark: the messages kept for a subscriber that does not read; the rest is lost to it.
    """

    enable_kv_cache_events: bool = False
    publisher: str = ZMQ
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""

    def __post_init__(self) -> None:
        """ValueError naming the field that cannot be."""
        if self.publisher not in (ZMQ, "null"):
            raise ValueError(f"publisher {self.publisher!r} is unknown: zmq, or null for none")
        for name in ("buffer_steps", "hwm", "max_queue_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name, endpoint in (("endpoint", self.endpoint), ("replay_endpoint", self.replay_endpoint)):
            if endpoint is not None and not endpoint.startswith(("tcp://", "ipc://", "inproc://")):
                raise ValueError(f"{name} {endpoint!r} is no ZMQ endpoint: tcp://…, ipc://… or inproc://…")

    @property
    def publishes(self) -> bool:
        """Whether anything is to be sent at all."""
        return self.enable_kv_cache_events and self.publisher == ZMQ

    def to_json(self) -> dict[str, Json]:
        """As vLLM shows it."""
        return asdict(self)


KINDS: dict[str, tuple[type, ...]] = {
    "enable_kv_cache_events": (bool,),
    "publisher": (str,),
    "endpoint": (str,),
    "replay_endpoint": (str, type(None)),
    "buffer_steps": (int,),
    "hwm": (int,),
    "max_queue_size": (int,),
    "topic": (str,),
}


def parse_events_config(text: str) -> EventsConfig:
    """The configuration that a JSON object gives; ValueError that names the key and what it should be."""
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError('is not a JSON object such as {"enable_kv_cache_events": true}')  # noqa: TRY004 - argparse's
    for name, value in given.items():
        kinds = KINDS.get(name)
        if kinds is None:
            raise ValueError(f"has no key {name!r}; there are {', '.join(KINDS)}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r}")
    if "publisher" not in given:
        given["publisher"] = ZMQ if given.get("enable_kv_cache_events") else "null"
    return EventsConfig(**given)
