"""KV events as bytes: vLLM's fields, names and order, as arrays (vLLM up to 0.23) or as maps (vLLM from 0.24, SGLang).

A batch is an array in either: `[timestamp, [events…], data_parallel_rank]`. What is encoded here was compared with
frames recorded from vLLM 0.32. Pure functions: no socket, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

BlockHash = int | bytes
"""u64 (the low 64 bits of a digest), or the whole digest."""

GPU = "GPU"
"""vLLM's name for the memory that attention reads, on a CPU too."""

GROUP = 0
"""All layers are of one kind, so there is one group of blocks."""

SPEC_KIND = "full_attention"
DATA_PARALLEL_RANK = 0
SEQUENCE_BYTES = 8
REPLAY_END = b"\xff" * SEQUENCE_BYTES
"""Sequence number −1: a replay is over."""


class Encoding(Enum):
    """How an event looks inside the batch."""

    ARRAY = "array"
    MAP = "map"


class Stored(NamedTuple):
    """Consecutive blocks of one chain became findable; `extra_keys` has one entry per block, None where there is none.

    `token_ids` has `block_size` tokens per block. `parent_block_hash` None: the chain starts here.
    """

    block_hashes: Sequence[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: Sequence[int]
    block_size: int
    lora_name: str | None
    extra_keys: Sequence[Sequence[str] | None]
    medium: str = GPU


class Removed(NamedTuple):
    """The last copies of these blocks left this medium."""

    block_hashes: Sequence[BlockHash]
    medium: str = GPU


class Cleared(NamedTuple):
    """Everything is gone."""


Event = Stored | Removed | Cleared
Fields = list[tuple[str, object]]


def encode_batch(timestamp: float, events: Sequence[Event], encoding: Encoding) -> bytes:
    """The payload of one message; `timestamp` in seconds since the epoch."""
    form: Callable[[Event], object] = _as_map if encoding is Encoding.MAP else _as_array
    return msgspec.msgpack.encode([timestamp, [form(event) for event in events], DATA_PARALLEL_RANK])


def published_frames(topic: bytes, sequence: int, payload: bytes) -> list[bytes]:
    """What a subscriber gets."""
    return [topic, sequence.to_bytes(SEQUENCE_BYTES, "big"), payload]


def replay_frames(topic: bytes, sequence: int | None, payload: bytes, *, with_topic: bool) -> list[bytes]:
    """One answer to a replay request; sequence None ends it. vLLM sends the topic from 0.26 on, and none at the end."""
    if sequence is None:
        topic, number = b"", REPLAY_END
    else:
        number = sequence.to_bytes(SEQUENCE_BYTES, "big")
    return [b"", topic, number, payload] if with_topic else [b"", number, payload]


def _as_map(event: Event) -> dict[str, object]:
    return {"type": _name(event), **dict(_fields(event))}


def _as_array(event: Event) -> list[object]:
    return [_name(event), *(value for _, value in _fields(event))]


def _name(event: Event) -> str:
    if isinstance(event, Stored):
        return "BlockStored"
    return "BlockRemoved" if isinstance(event, Removed) else "AllBlocksCleared"


def _fields(event: Event) -> Fields:
    """Names and values in the order of vLLM's arrays; what it leaves out at its default is not here."""
    if isinstance(event, Stored):
        return [
            ("block_hashes", event.block_hashes),
            ("parent_block_hash", event.parent_block_hash),
            ("token_ids", event.token_ids),
            ("block_size", event.block_size),
            ("lora_id", None),
            ("medium", event.medium),
            ("lora_name", event.lora_name),
            ("extra_keys", event.extra_keys),
            ("group_idx", GROUP),
            ("kv_cache_spec_kind", SPEC_KIND),
        ]
    if isinstance(event, Removed):
        return [("block_hashes", event.block_hashes), ("medium", event.medium), ("group_idx", GROUP)]
    return []
