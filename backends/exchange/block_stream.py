"""Blocks on their way from worker to worker: a head, then entries of one size, as many as the head says.

    magic 8 │ version 2 │ config digest 12 │ bytes of an entry 8 │ entries 4

An entry is what the tiers keep (backends/tiers/entry.py): config digest, parent, tokens, lengths and checksums before
the payload. The receiver knows every length before it reads, so a stream can neither surprise nor flood it.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

MAGIC = b"HOMINGKX"
VERSION = 1

_HEAD = Struct("<8sH12sQI")
HEAD_BYTES = _HEAD.size


class BrokenStreamError(Exception):
    """What comes is not what was asked for; `reason` is one word for the answer and the metrics."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Head(NamedTuple):
    """What follows: `entries` of `entry_bytes` each, of the config with this digest."""

    config_digest: str
    entry_bytes: int
    entries: int


def encode_head(head: Head) -> bytes:
    """`HEAD_BYTES` bytes."""
    return _HEAD.pack(MAGIC, VERSION, head.config_digest.encode("ascii"), head.entry_bytes, head.entries)


def decode_head(data: bytes, expected: Head) -> int:
    """How many entries follow, at most as many as expected; BrokenStreamError for another form, config or size."""
    if len(data) != HEAD_BYTES:
        raise BrokenStreamError("truncated")
    magic, version, config, entry_bytes, count = _HEAD.unpack(data)
    if (magic, version) != (MAGIC, VERSION):
        raise BrokenStreamError("not_blocks")
    if (config, entry_bytes) != (expected.config_digest.encode("ascii"), expected.entry_bytes):
        raise BrokenStreamError("foreign_config")
    if count > expected.entries:
        raise BrokenStreamError("too_many")
    return int(count)
