"""The worker's events as one thing: switched on or off by the options, and what is told of them over HTTP."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from urllib.parse import urlsplit

from backends.events.config import ZMQ, EventsConfig
from backends.events.journal import EventJournal
from backends.events.publisher import EventPublisher
from backends.events.wire import DATA_PARALLEL_RANK, Encoding
from router.core import Json


class EventService:
    """A journal for the block pool, and the publisher behind it."""

    def __init__(self, publisher: EventPublisher, *, whole_hashes: bool = False) -> None:
        self._publisher = publisher
        self.journal = EventJournal(publisher.publish, whole_hashes=whole_hashes)

    @property
    def config(self) -> EventsConfig:
        """As it was given, with the ports that were taken."""
        return self._publisher.config

    def start(self) -> None:
        """EventsError when the sockets cannot be had."""
        self._publisher.start()

    def stop(self) -> None:
        """Send the last events and end."""
        self._publisher.stop()


def build_events(options: argparse.Namespace) -> EventService | None:
    """What the options ask for; None when nothing is to be published."""
    config: EventsConfig | None = options.kv_events_config
    if config is None or not config.publishes or not options.enable_prefix_caching:
        return None
    publisher = EventPublisher(
        config, encoding=Encoding(options.kv_events_encoding), replay_topic=options.kv_events_replay_topic
    )
    return EventService(publisher, whole_hashes=options.kv_events_hashes == "bytes")


def event_sources(service: EventService | None) -> dict[str, Json]:
    """vLLM's `GET /kv_event_sources`: a configuration by data-parallel rank, none when nothing is published."""
    return {} if service is None else {str(DATA_PARALLEL_RANK): service.config.to_json()}


def event_summary(service: EventService | None, block_tokens: int) -> dict[str, Json] | None:
    """SGLang's `kv_events` in `/server_info`; routers put the worker's own host in place of a wildcard."""
    if service is None:
        return None
    config = service.config
    host, port = _host_and_port(config.endpoint)
    summary: dict[str, Json] = {
        "publisher": ZMQ,
        "endpoint_host": host,
        "endpoint_port_base": port,
        "topic": config.topic,
        "block_size": block_tokens,
        "dp_size": 1,
    }
    if config.replay_endpoint is not None:
        summary["replay_endpoint_port_base"] = _host_and_port(config.replay_endpoint)[1]
    return summary


def _host_and_port(endpoint: str) -> Sequence[Json]:
    """Of a TCP endpoint; an ipc path stands as the host, without a port."""
    if not endpoint.startswith("tcp://"):
        return endpoint, None
    url = urlsplit(endpoint)
    return url.hostname, url.port
