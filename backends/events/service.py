"""The worker's events as one thing: switched on or off by the options, and what is told of them over HTTP."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from backends.accounts import EngineStats
from backends.events.config import ZMQ, EventsConfig
from backends.events.journal import EventJournal, TierEvents
from backends.events.publisher import EventPublisher
from backends.events.wire import DATA_PARALLEL_RANK, Encoding
from backends.holdings import Holdings
from backends.journal import Journal, NoJournal
from backends.types import GenerationRequest
from router.core import Json

logger = logging.getLogger("homing.worker")

Watch = Callable[[EngineStats], None]


class EventService:
    """A journal for the block pool and the publisher behind it; without a publisher nothing is told to nobody."""

    def __init__(self, publisher: EventPublisher | None = None, *, whole_hashes: bool = False) -> None:
        self._publisher = publisher
        self._events = None if publisher is None else EventJournal(publisher.publish, whole_hashes=whole_hashes)

    @property
    def config(self) -> EventsConfig | None:
        """As it was given, with the ports that were taken; None when nothing is published."""
        return None if self._publisher is None else self._publisher.config

    @property
    def journal(self) -> Journal:
        """For the block pool."""
        return self._events or NoJournal()

    @property
    def tiers(self) -> TierEvents | None:
        """For the tiers; None when nothing is published."""
        return None if self._events is None else self._events.tiers

    @property
    def dropped(self) -> int:
        """Batches that found no room in the queue."""
        return 0 if self._publisher is None else self._publisher.dropped

    def start(self) -> None:
        """EventsError when the sockets cannot be had."""
        if self._publisher is not None:
            self._publisher.start()
            config = self._publisher.config
            logger.info("KV events at %s, repeated at %s", config.endpoint, config.replay_endpoint or "no endpoint")

    def stop(self) -> None:
        """Send the last events and end."""
        if self._publisher is not None:
            self._publisher.stop()

    def before(self, watch: Watch) -> Watch:
        """A watcher of the engine that sends a step's events off first.

        The engine's thread calls it after every step, before anybody hears of the step: whoever has an answer, and
        asks a router for the next one, comes later than the events about it.
        """
        events = self._events
        if events is None:
            return watch

        def flush_and_watch(stats: EngineStats) -> None:
            events.flush()
            watch(stats)

        return flush_and_watch

    def repeat(self, holdings: Holdings, request: GenerationRequest) -> None:
        """Tell again of the blocks that the request's prompt will find cached. Engine thread."""
        if self._events is None or not request.reads_cache:
            return
        prompt = holdings.prompt(request.prompt_ids, cache_salt=request.cache_salt, adapter=request.adapter)
        self._events.repeat(prompt.keys[: prompt.held_blocks])


NO_EVENTS = EventService()


def build_events(options: argparse.Namespace) -> EventService:
    """What the options ask for."""
    config: EventsConfig | None = options.kv_events_config
    if config is None or not config.publishes:
        return NO_EVENTS
    if not options.enable_prefix_caching:
        logger.warning("No KV events: there are none without --enable-prefix-caching")
        return NO_EVENTS
    publisher = EventPublisher(
        config, encoding=Encoding(options.kv_events_encoding), replay_topic=options.kv_events_replay_topic
    )
    return EventService(publisher, whole_hashes=options.kv_events_hashes == "bytes")


def event_sources(service: EventService) -> dict[str, Json]:
    """vLLM's `GET /kv_event_sources`: a configuration by data-parallel rank, none when nothing is published."""
    config = service.config
    return {} if config is None else {str(DATA_PARALLEL_RANK): config.to_json()}


def event_summary(service: EventService, block_tokens: int) -> dict[str, Json] | None:
    """SGLang's `kv_events` in `/server_info`; routers put the worker's own host in place of a wildcard."""
    config = service.config
    if config is None:
        return None
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
