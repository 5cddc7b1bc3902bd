"""How news travels: one batch is one value in Redis, binary, versioned, authenticated, and strict to read.

All integers little-endian. A batch is

    version u8 · replica 8 bytes · sequence u64 · epoch u32 · flags u8 · models u8 · 8 bytes for each model ·
    items · 16 bytes of keyed BLAKE2b over all before

and an item is one of

    1 · model u8 · flags u8 · number u64 · worker 8 bytes · prefill seconds f32 · age seconds f32 · prompt tokens u32 ·
        blocks u16 · [the last known block, 16 bytes] · 16 bytes for each new block        a placement
    2 · number u64                                                                         its first token
    3 · number u64                                                                         its end

Models and workers travel as digests, so that no name is in Redis; block hashes are salted already.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct, error
from typing import Final, NamedTuple

VERSION: Final = 1
MARK_BYTES: Final = 8
"""Of a replica, a model's digest and a worker's."""
BLOCK_BYTES: Final = 16
SEAL_BYTES: Final = 16
BATCH_BYTES: Final = 256 * 1024
"""A longer value is no batch of ours."""
MODELS_PER_BATCH: Final = 0xFF
MOST_EPOCH: Final = 0xFFFFFFFF
ROOM_BYTES: Final = BATCH_BYTES // 4
"""A batch is full with so much; the item that filled it may go beyond."""
BLOCKS_PER_PLACEMENT: Final = (BATCH_BYTES - ROOM_BYTES - 4096) // BLOCK_BYTES
"""So many new blocks go into one item; the rest of a longer chain is told with the next placement behind it."""
MOST_SECONDS: Final = 1e6
"""No prefill takes so long: more would drown everybody else's seconds in a sum."""

_HEAD: Final = Struct("<B8sQIBB")
_PLACED: Final = Struct("<BBBQ8sffIH")
_OTHER: Final = Struct("<BQ")
_BLOCKS_AT_ONCE: Final = 256
_KIND_PLACED, _KIND_STARTED, _KIND_ENDED = 1, 2, 3
_SILENT, _KNOWN = 1, 2
_AFRESH, _LEAVING = 1, 2
_PERSON: Final = b"homing news v1"


class NotOurs(ValueError):
    """A value that is no batch of this fleet's; `reason` is one of a few words for a metric."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Placed(NamedTuple):
    """A request was sent to a worker; its chain is that of `known` (if any) with `blocks` after it.

    `number` is the replica's own for the request; `age_seconds` is how long ago it was placed when the batch was made.
    """

    model: bytes
    number: int
    worker: bytes
    prefill_seconds: float
    age_seconds: float
    prompt_tokens: int
    silent: bool
    known: bytes | None
    blocks: Sequence[bytes]


class Started(NamedTuple):
    """A request's first token came."""

    number: int


class Ended(NamedTuple):
    """A request ended."""

    number: int


Item = Placed | Started | Ended


class Batch(NamedTuple):
    """Items of one replica in order.

    `afresh` says that news before it was lost: what is still in flight is told again. `leaving` says goodbye.
    """

    replica: bytes
    sequence: int
    epoch: int
    items: Sequence[Item]
    afresh: bool = False
    leaving: bool = False


def pack(batch: Batch, key: bytes) -> bytes:
    """The value for a batch, sealed with `key` (at most 64 bytes; empty: no secret, only a checksum)."""
    models: dict[bytes, int] = {}
    for item in batch.items:
        if type(item) is Placed:
            models.setdefault(item.model, len(models))
    flags = _AFRESH * batch.afresh + _LEAVING * batch.leaving
    parts = [_HEAD.pack(VERSION, batch.replica, batch.sequence, batch.epoch, flags, len(models)), *models]
    for item in batch.items:
        if type(item) is Placed:
            _pack_placed(item, models[item.model], parts)
        else:
            parts.append(_OTHER.pack(_KIND_STARTED if type(item) is Started else _KIND_ENDED, item.number))
    body = b"".join(parts)
    return body + _seal(body, key)


def unpack(value: bytes, key: bytes) -> Batch:
    """Read a value; `NotOurs` for whatever is not exactly a batch sealed with `key`."""
    if len(value) > BATCH_BYTES:
        raise NotOurs("oversized")
    if len(value) < _HEAD.size + SEAL_BYTES:
        raise NotOurs("malformed")
    if value[0] != VERSION:
        raise NotOurs("version")
    body = value[:-SEAL_BYTES]
    if not compare_digest(_seal(body, key), value[-SEAL_BYTES:]):
        raise NotOurs("forged")
    try:
        return _read(body)
    except (error, IndexError):
        raise NotOurs("malformed") from None


def sequence_of(value: bytes, replica: bytes) -> int | None:
    """The sequence that a value of this replica's claims to have; None for another's."""
    if len(value) < _HEAD.size or value[1 : 1 + MARK_BYTES] != replica:
        return None
    return int(_HEAD.unpack_from(value)[2])


def placed_bytes(new_blocks: int) -> int:
    """The length of a placement with so many new blocks, at most."""
    return _PLACED.size + BLOCK_BYTES * (new_blocks + 1)


def _seal(body: bytes, key: bytes) -> bytes:
    return blake2b(body, digest_size=SEAL_BYTES, key=key, person=_PERSON).digest()


def _pack_placed(item: Placed, model: int, parts: list[bytes]) -> None:
    flags = _SILENT * item.silent + _KNOWN * (item.known is not None)
    seconds, age, blocks = item.prefill_seconds, item.age_seconds, item.blocks
    parts.append(
        _PLACED.pack(
            _KIND_PLACED, model, flags, item.number, item.worker, seconds, age, item.prompt_tokens, len(blocks)
        )
    )
    if item.known is not None:
        parts.append(item.known)
    parts += blocks


def _read(body: bytes) -> Batch:
    _, replica, sequence, epoch, flags, count = _HEAD.unpack_from(body)
    position = _HEAD.size + count * MARK_BYTES
    models = [body[start : start + MARK_BYTES] for start in range(_HEAD.size, position, MARK_BYTES)]
    items: list[Item] = []
    end = len(body)
    if position > end or flags > (_AFRESH | _LEAVING):
        raise NotOurs("malformed")
    while position < end:
        kind = body[position]
        if kind == _KIND_PLACED:
            item, position = _read_placed(body, position, models)
            items.append(item)
        elif kind in (_KIND_STARTED, _KIND_ENDED):
            number = _OTHER.unpack_from(body, position)[1]
            items.append(Started(number) if kind == _KIND_STARTED else Ended(number))
            position += _OTHER.size
        else:
            raise NotOurs("malformed")
    return Batch(replica, sequence, epoch, items, bool(flags & _AFRESH), bool(flags & _LEAVING))


def _blocks(body: bytes, position: int, count: int) -> list[bytes]:
    """So many blocks, many at once: one by one they would take four times as long."""
    blocks: list[bytes] = []
    for start in range(0, count, _BLOCKS_AT_ONCE):
        blocks += _several(min(_BLOCKS_AT_ONCE, count - start)).unpack_from(body, position + start * BLOCK_BYTES)
    return blocks


@lru_cache(_BLOCKS_AT_ONCE)
def _several(count: int) -> Struct:
    return Struct(f"{BLOCK_BYTES}s" * count)


def _read_placed(body: bytes, start: int, models: Sequence[bytes]) -> tuple[Placed, int]:
    _, model, flags, number, worker, seconds, age, tokens, count = _PLACED.unpack_from(body, start)
    position = start + _PLACED.size
    known = None
    if flags & _KNOWN:
        known = body[position : position + BLOCK_BYTES]
        position += BLOCK_BYTES
    after = position + count * BLOCK_BYTES
    sane = 0 <= seconds <= MOST_SECONDS and 0 <= age <= MOST_SECONDS
    if after > len(body) or flags > (_SILENT | _KNOWN) or not sane:
        raise NotOurs("malformed")
    blocks = _blocks(body, position, count)
    silent = bool(flags & _SILENT)
    return Placed(models[model], number, worker, seconds, age, tokens, silent, known, blocks), after
