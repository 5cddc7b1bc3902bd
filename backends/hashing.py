"""How a full block of tokens gets its name: a SHA-256 chain, the same in every process and on every machine.

    digest(block) = SHA-256(digest(parent) ‖ tokens as little-endian u32)

The first block's parent is a root that binds the extra keys (adapter, cache salt), each tagged and length-prefixed so
that no value of one can imitate a value of another; the chain carries them on. A digest only *finds* a block: what
was found is compared by its tokens and its parents, so even a broken digest cannot serve foreign K/V.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable
from hashlib import sha256

TOKEN_BYTES = 4

NONE_HASH = sha256(b"homing worker block hash 1").digest()
"""The root's digest when there are no extra keys; raise the number when anything about the hash changes."""

Digest = Callable[[bytes], bytes]
"""Bytes to a short digest; SHA-256 outside tests."""


class BlockKey:
    """One full block's identity: `digest` to find it by, `tokens` (packed) and `parent` to be sure.

    A root has no parent, and its `tokens` are the encoded extra keys.
    """

    __slots__ = ("digest", "parent", "tokens")

    def __init__(self, digest: bytes, parent: BlockKey | None, tokens: bytes) -> None:
        self.digest = digest
        self.parent = parent
        self.tokens = tokens


class RootKey(BlockKey):
    """What a first block follows: it stands for the extra keys, which bind everything after it."""

    __slots__ = ("adapter", "cache_salt")

    def __init__(self, digest: bytes, tokens: bytes, adapter: str | None, cache_salt: str | None) -> None:
        super().__init__(digest, None, tokens)
        self.adapter = adapter
        self.cache_salt = cache_salt


class BlockHasher:
    """Names the full blocks of token sequences, `block_tokens` at a time."""

    __slots__ = ("_block_bytes", "_digest", "block_tokens")

    def __init__(self, block_tokens: int, digest: Digest | None = None) -> None:
        self.block_tokens = block_tokens
        self._block_bytes = block_tokens * TOKEN_BYTES
        self._digest = digest or _sha256

    def root(self, *, adapter: str | None = None, cache_salt: str | None = None) -> RootKey:
        """The parent of a first block: differs whenever the adapter or the salt differs."""
        extra = encode_extra_keys(adapter, cache_salt)
        digest = self._digest(b"extra keys" + NONE_HASH + extra) if extra else NONE_HASH
        return RootKey(digest, extra, adapter, cache_salt)

    def extend(self, keys: list[BlockKey], root: BlockKey, packed: bytes) -> None:
        """Append to `keys` the keys of the full blocks in `packed`, the tokens right after those `keys` cover."""
        digest, step = self._digest, self._block_bytes
        parent = keys[-1] if keys else root
        for start in range(0, len(packed) - step + 1, step):
            tokens = packed[start : start + step]
            parent = BlockKey(digest(parent.digest + tokens), parent, tokens)
            keys.append(parent)


def pack(tokens: Iterable[int]) -> bytes:
    """Token ids as little-endian u32; OverflowError for an id that does not fit."""
    packed = tokens if isinstance(tokens, array) and tokens.typecode == "I" else array("I", tokens)
    if sys.byteorder == "big":
        packed = array("I", packed)
        packed.byteswap()
    return packed.tobytes()


def unpack(packed: bytes) -> array[int]:
    """Little-endian u32 bytes as numbers."""
    ids = array("I")
    ids.frombytes(packed)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


def encode_extra_keys(adapter: str | None, cache_salt: str | None) -> bytes:
    """Extra keys as bytes, tagged and length-prefixed: two pairs give the same bytes only when they are equal."""
    fields = ((b"adapter", adapter), (b"cache_salt", cache_salt))
    return b"".join(_tagged(tag, value) for tag, value in fields if value is not None)


def same_chain(one: BlockKey | None, other: BlockKey | None) -> bool:
    """Whether two keys stand for the same tokens after the same extra keys; digests are not looked at."""
    while one is not other:
        if one is None or other is None or one.tokens != other.tokens:
            return False
        one, other = one.parent, other.parent
    return True


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


def _tagged(tag: bytes, value: str) -> bytes:
    encoded = value.encode(errors="surrogatepass")
    return b"%d:%s=%d:%s;" % (len(tag), tag, len(encoded), encoded)
