"""How a block looks outside this process: a header that says whose K/V follow and how to tell that they are whole.

    magic 8 │ version 2 │ config digest 12 │ bytes of tokens 4 │ bytes of payload 8 │ parent's name 32 │ xxh3_128 of the
    payload 16 │ tokens │ xxh3_64 of everything before 8 │ payload

Checksums find accidents, not forgers: whoever can write to the disk folder or the Redis can forge K/V.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from xxhash import xxh3_64_digest, xxh3_128_digest

from backends.hashing import BlockKey

MAGIC = b"HOMINGKV"
VERSION = 1
NAME_BYTES = 32

_FIXED = Struct("<8sH12sIQ32s16s")
_HEADER_CHECKSUM_BYTES = 8


class BrokenEntryError(ValueError):
    """Not a whole entry of this block under this config; the message says what is wrong, and nothing of the content."""


class Named(NamedTuple):
    """A block and its name in the tiers, which stands for its tokens and all that came before them."""

    key: BlockKey
    name: bytes


class EntryFormat:
    """Seals and opens the blocks of one config: `config_digest` is the runner's, of 12 characters."""

    def __init__(self, config_digest: str, token_bytes: int, payload_bytes: int) -> None:
        self.config_digest = config_digest
        self._config = config_digest.encode("ascii")
        self._token_bytes = token_bytes
        self.payload_bytes = payload_bytes
        self._payload_start = _FIXED.size + token_bytes + _HEADER_CHECKSUM_BYTES
        self.entry_bytes = self._payload_start + payload_bytes

    def seal(self, block: Named, payload: bytes | memoryview) -> bytes:
        """The header; the entry is this followed by the payload."""
        fixed = _FIXED.pack(
            MAGIC,
            VERSION,
            self._config,
            len(block.key.tokens),
            len(payload),
            _parent_name(block.key),
            xxh3_128_digest(payload),
        )
        header = fixed + block.key.tokens
        return header + xxh3_64_digest(header)

    def open(self, block: Named, entry: bytes) -> memoryview:
        """The payload, without a copy; BrokenEntryError unless the entry is whole and of this very block."""
        if len(entry) != self.entry_bytes:
            raise BrokenEntryError(f"{len(entry)} bytes in place of {self.entry_bytes}")
        checked_bytes = self._payload_start - _HEADER_CHECKSUM_BYTES
        if xxh3_64_digest(entry[:checked_bytes]) != entry[checked_bytes : self._payload_start]:
            raise BrokenEntryError("the header is damaged")
        payload = memoryview(entry)[self._payload_start :]
        magic, version, config, token_bytes, payload_bytes, parent, checksum = _FIXED.unpack_from(entry)
        if (magic, version, config) != (MAGIC, VERSION, self._config):
            raise BrokenEntryError("written by another version or for another model or cache layout")
        if (token_bytes, payload_bytes) != (self._token_bytes, len(payload)):
            raise BrokenEntryError("other sizes than this cache has")
        if entry[_FIXED.size : checked_bytes] != block.key.tokens or parent != _parent_name(block.key):
            raise BrokenEntryError("another block's content")
        if xxh3_128_digest(payload) != checksum:
            raise BrokenEntryError("the payload is damaged")
        return payload


def named(keys: Sequence[BlockKey]) -> list[Named]:
    """The blocks of one chain, in order, each following the one before, with their names.

    A digest of 32 bytes is a SHA-256 over the whole chain and is the name. Shorter ones (a broken hash in a test) could
    stand for several contents, so such a chain is hashed here.
    """
    if all(len(key.digest) == NAME_BYTES for key in keys):
        return [Named(key, key.digest) for key in keys]
    return [Named(key, name_of(key)) for key in keys]


def name_of(key: BlockKey) -> bytes:
    """One block's name; see `named`."""
    if len(key.digest) == NAME_BYTES:
        return key.digest
    chain = []
    block: BlockKey | None = key
    while block is not None:
        chain.append(b"%d:%s" % (len(block.tokens), block.tokens))
        block = block.parent
    return sha256(b"".join(reversed(chain))).digest()


def _parent_name(key: BlockKey) -> bytes:
    return bytes(NAME_BYTES) if key.parent is None else name_of(key.parent)
