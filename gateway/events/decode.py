"""From the bytes of one message to cache events, whichever engine wrote them.

A batch is a msgpack array `[timestamp, [events…], rank]`; the rank may be missing. An event is a map with a `type`
(vLLM from 0.24, SGLang) or an array that begins with its name (older vLLM). Fields and positions that are not known
are passed over, so are kinds of events, media that are not the worker's own, and layers that keep less than the whole
context. Names and order: vLLM's `distributed/kv_events.py`. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from router.cache_events import MEDIA, CacheEvent, Cleared, Removed, Stored, WorkerHash
from router.encoders import pack

STORED_FIELDS = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
    "group_idx", "kv_cache_spec_kind",
)  # fmt: skip
REMOVED_FIELDS = ("block_hashes", "medium", "group_idx")
FIELDS = {"BlockStored": STORED_FIELDS, "BlockRemoved": REMOVED_FIELDS, "AllBlocksCleared": ()}

FULL_ATTENTION = (None, "full_attention")
REMOTE = "REMOTE"
UNNAMED_ADAPTER = "\0"


class BadBatch(ValueError):
    """A payload that is no batch of events; the message says why and quotes nothing of it."""


class Batch(NamedTuple):
    """One message's events in order. `timestamp` is the worker's clock, in seconds since the epoch."""

    timestamp: float
    events: Sequence[CacheEvent]


class Decoder:
    """Decodes the batches of one stream: what it heard of groups of layers goes for later batches."""

    def __init__(self) -> None:
        self._partial_groups: set[int] = set()

    def decode(self, payload: bytes) -> Batch:
        """`BadBatch` for what is none."""
        try:
            batch = msgspec.msgpack.decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadBatch(f"not msgpack ({type(error).__name__})") from None
        if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
            raise BadBatch("not an array of a time and events")
        timestamp = batch[0] if isinstance(batch[0], float | int) else 0.0
        events = (self._event(*_named(event)) for event in batch[1])
        return Batch(float(timestamp), [event for event in events if event is not None])

    def _event(self, name: str, fields: Mapping[str, Any]) -> CacheEvent | None:
        """The event, or None for one that says nothing about the worker's own whole-context cache."""
        if name == "AllBlocksCleared":
            return Cleared()
        said, group = fields.get("medium"), fields.get("group_idx")
        if not (said is None or isinstance(said, str)) or not (group is None or isinstance(group, int)):
            raise BadBatch("medium is no name or group_idx no number")
        if name not in FIELDS or said not in MEDIA or fields.get("locality") == REMOTE:
            return None
        medium, hashes = MEDIA[said], _hashes(fields)
        if name == "BlockStored" and fields.get("kv_cache_spec_kind") not in FULL_ATTENTION:
            self._partial_groups.add(group or 0)
            return None
        if (group or 0) in self._partial_groups:
            return None
        return Removed(hashes, medium) if name == "BlockRemoved" else _stored(fields, hashes, medium)


def _named(event: object) -> tuple[str, Mapping[str, Any]]:
    if isinstance(event, dict):
        return str(event.get("type")), event
    if not isinstance(event, list) or not event:
        raise BadBatch("an event is neither a map nor an array with a name")
    name = str(event[0])
    return name, dict(zip(FIELDS.get(name, ()), event[1:], strict=False))


def _hashes(fields: Mapping[str, Any]) -> Sequence[WorkerHash]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list) or not all(isinstance(each, int | bytes) for each in hashes):
        raise BadBatch("block_hashes is no array of hashes")
    return hashes


def _stored(fields: Mapping[str, Any], hashes: Sequence[WorkerHash], medium: str) -> Stored:
    size, parent, extra, salt = (
        fields.get(name) for name in ("block_size", "parent_block_hash", "extra_keys", "cache_salt")
    )
    if not isinstance(size, int) or size < 1:
        raise BadBatch("block_size is no positive number")
    if not (parent is None or isinstance(parent, int | bytes)):
        raise BadBatch("parent_block_hash is no hash")
    return Stored(
        hashes,
        parent,
        _tokens(fields.get("token_ids"), size * len(hashes)),
        size,
        _extra_keys(extra, hashes) if extra is not None else (),
        _adapter(fields),
        str(salt) if salt is not None else None,
        medium,
    )


def _tokens(ids: object, count: int) -> bytes:
    if not ids:
        return b""
    if not isinstance(ids, list) or len(ids) != count:
        raise BadBatch("token_ids does not fill the blocks")
    try:
        return pack(ids)
    except (TypeError, ValueError):
        raise BadBatch("token_ids holds something that is no token id") from None


def _adapter(fields: Mapping[str, Any]) -> str | None:
    """The adapter's name. Old versions give a number only: no request can be told to be its, and none is."""
    name, number = fields.get("lora_name"), fields.get("lora_id")
    if name is None and number is not None:
        return f"{UNNAMED_ADAPTER}{number}"
    return None if name is None else str(name)


def _extra_keys(extra: object, hashes: Sequence[WorkerHash]) -> Sequence[Sequence[Any] | None]:
    if not isinstance(extra, list) or len(extra) != len(hashes):
        raise BadBatch("extra_keys is not one entry for each block")
    if not all(keys is None or isinstance(keys, list) for keys in extra):
        raise BadBatch("extra_keys holds something else than lists")
    return extra
