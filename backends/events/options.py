"""Options of the KV events: vLLM's configuration, and which of vLLM's forms they have on the wire."""

from __future__ import annotations

import argparse
import os

from backends.events.config import EventsConfig, parse_events_config


def add_event_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument(
        "--kv-events-config",
        type=_config,
        metavar="JSON",
        help='vLLM\'s: {"enable_kv_cache_events": true, "endpoint": "tcp://*:5557", "replay_endpoint": '
        '"tcp://*:5558", "topic": "", "buffer_steps": 10000, "hwm": 100000, "max_queue_size": 100000}',
    )
    group.add_argument(
        "--kv-events-encoding",
        choices=["array", "map"],
        default="map",
        help="of each event: map as vLLM from 0.24, array as older ones",
    )
    group.add_argument(
        "--kv-events-hashes",
        choices=["int", "bytes"],
        default="bytes" if os.environ.get("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES") == "0" else "int",
        help="64 bits of each block's hash, or all 32 bytes; also VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0",
    )
    group.add_argument(
        "--kv-events-replay-topic",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the topic in replays, as vLLM from 0.26",
    )


def _config(text: str) -> EventsConfig:
    try:
        return parse_events_config(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
