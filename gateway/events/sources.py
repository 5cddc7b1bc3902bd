"""Where a worker publishes its KV events: what it says of that, and which of it may be connected to. Pure functions.

A worker's word is not trusted with addresses: a wildcard means the worker's own host, and another host, a local
socket or a link-local address is connected to only if the configuration names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gateway.placement_settings import EventSettings

WILDCARDS = frozenset(("*", "0.0.0.0", "::", ""))
MAX_RANKS = 64
_RANK_DIGITS = 5


class SourceError(ValueError):
    """A source that cannot be used; the message says why and what would help."""


class Source(NamedTuple):
    """One stream: where it is published, where it is repeated (None: nowhere), its topic and its rank."""

    endpoint: str
    replay_endpoint: str | None
    topic: str
    rank: int
    block_tokens: int | None = None


def configured_sources(settings: EventSettings, host: str) -> Sequence[Source]:
    """What the configuration says, with the worker's `host` for wildcards and a port more for each further rank."""
    endpoint = settings.endpoint or ""
    return [
        Source(
            _shifted(_at_host(endpoint, host), rank),
            _shifted(_at_host(settings.replay_endpoint, host), rank) if settings.replay_endpoint else None,
            settings.topic,
            rank,
        )
        for rank in range(settings.ranks)
    ]


def vllm_sources(answer: Any, host: str) -> Sequence[Source]:
    """`GET /kv_event_sources`: a configuration by data-parallel rank; empty where nothing is published.

    Ranks that share one endpoint listen at that port plus their rank; others have said their own. SourceError for
    what is no such answer, and for an endpoint elsewhere.
    """
    if not isinstance(answer, dict) or len(answer) > MAX_RANKS:
        raise SourceError("/kv_event_sources is no object of ranks")
    published = {rank: config for rank, config in answer.items() if _publishes(config)}
    endpoints = [config.get("endpoint") for config in published.values()]
    shared = len(endpoints) > 1 and all(each == endpoints[0] for each in endpoints)
    return [_vllm_source(rank, config, host, shared=shared) for rank, config in published.items()]


def sglang_sources(answer: Any, host: str) -> Sequence[Source]:
    """`kv_events` of `GET /server_info`: ports that count up by rank; empty where nothing is published."""
    told = answer.get("kv_events") if isinstance(answer, dict) else None
    if not told:
        return []
    if not isinstance(told, dict) or not isinstance(told.get("endpoint_port_base"), int):
        raise SourceError("kv_events of /server_info names no TCP port: configure models.NAME.events")
    at = _own_host(str(told.get("endpoint_host") or "*"), host)
    replay, size = told.get("replay_endpoint_port_base"), told.get("block_size")
    ranks = told.get("dp_size")
    return [
        Source(
            _tcp(at, told["endpoint_port_base"] + rank),
            _tcp(at, replay + rank) if isinstance(replay, int) else None,
            str(told.get("topic") or ""),
            rank,
            size if isinstance(size, int) and size > 0 else None,
        )
        for rank in range(min(MAX_RANKS, ranks if isinstance(ranks, int) and ranks > 0 else 1))
    ]


def _publishes(config: Any) -> bool:
    if not isinstance(config, dict):
        raise SourceError("/kv_event_sources is no object of configurations")
    return bool(config.get("enable_kv_cache_events", True)) and config.get("publisher", "zmq") == "zmq"


def _vllm_source(rank: str, config: Mapping[str, Any], host: str, *, shared: bool) -> Source:
    if not (rank.isdecimal() and len(rank) <= _RANK_DIGITS):
        raise SourceError("/kv_event_sources names a rank that is no number")
    number = int(rank)
    endpoint, replay = (_told(config.get(name), host) for name in ("endpoint", "replay_endpoint"))
    if endpoint is None:
        raise SourceError("/kv_event_sources names no endpoint")
    if shared:
        endpoint, replay = _shifted(endpoint, number), _shifted(replay, number) if replay else None
    return Source(endpoint, replay, str(config.get("topic") or ""), number)


def _told(endpoint: Any, host: str) -> str | None:
    """An endpoint as a worker told it, at the worker's own host or nowhere."""
    if endpoint is None:
        return None
    if not isinstance(endpoint, str) or not endpoint.startswith("tcp://"):
        raise SourceError("the worker publishes at no TCP endpoint: name it in models.NAME.events if it can be reached")
    said, port = _split(endpoint)
    return _tcp(_own_host(said, host), port)


def _own_host(said: str, host: str) -> str:
    if said not in WILDCARDS and said != host:
        raise SourceError("the worker publishes at another host than its own: name it in models.NAME.events if so")
    return host


def _at_host(endpoint: str, host: str) -> str:
    """A configured endpoint, with the worker's host in place of a wildcard."""
    if not endpoint.startswith("tcp://"):
        return endpoint
    said, port = _split(endpoint)
    return _tcp(host if said in WILDCARDS else said, port)


def _split(endpoint: str) -> tuple[str, int]:
    try:
        url = urlsplit(endpoint)
        host, port = url.hostname or "", url.port
    except ValueError:
        port = None
    if not port:
        raise SourceError("an endpoint of KV events has no port: tcp://HOST:PORT")
    return host, port


def _shifted(endpoint: str, rank: int) -> str:
    if not rank or not endpoint.startswith("tcp://"):
        return endpoint
    host, port = _split(endpoint)
    return _tcp(host, port + rank)


def _tcp(host: str, port: int) -> str:
    if not 0 < port < 65536:
        raise SourceError("an endpoint of KV events has a port that is none: check ports and ranks")
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
