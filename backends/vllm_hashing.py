"""Block names byte for byte as vLLM's `--prefix-caching-hash-algo sha256_cbor`, from 0.31 on (without adapters: 0.29).

    digest(block) = SHA-256(CBOR((parent's digest, (token, …), extra keys or None)))

CBOR in its canonical form. The first block's parent is SHA-256(CBOR("vllm-none-hash")). Extra keys are tagged pairs
and triples, as vLLM's since 0.31; before that they were bare values, and an adapter named like a salt collided with it
(vllm#44701), so that form is not offered. The adapter is in every block's, the salt in the first one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from backends.hashing import TOKEN_BYTES, BlockHasher, BlockKey, RootKey, encode_extra_keys, unpack

Cbor = None | int | bytes | str | Sequence["Cbor"]

BYTES, TEXT, ARRAY = 2, 3, 4
"""CBOR's major types; 0 is an unsigned number."""

NULL = b"\xf6"


class VllmBlockHasher(BlockHasher):
    """Names blocks as vLLM does; four times slower than our own way, and for routers that compute vLLM's hashes."""

    __slots__ = ()

    def root(self, *, adapter: str | None = None, cache_salt: str | None = None) -> RootKey:
        """The parent of a first block; the extra keys enter the blocks' own digests."""
        return RootKey(NONE_HASH, encode_extra_keys(adapter, cache_salt), adapter, cache_salt)

    def extend(self, keys: list[BlockKey], root: BlockKey, packed: bytes) -> None:
        """See `BlockHasher.extend`."""
        step = self.block_tokens * TOKEN_BYTES
        parent = keys[-1] if keys else root
        adapter, salt = (root.adapter, root.cache_salt) if isinstance(root, RootKey) else (None, None)
        for start in range(0, len(packed) - step + 1, step):
            tokens = packed[start : start + step]
            extra = _extra_keys(adapter, None if keys else salt)
            digest = sha256(encode_block(parent.digest, unpack(tokens), extra)).digest()
            parent = BlockKey(digest, parent, tokens)
            keys.append(parent)


def encode_block(parent: bytes, tokens: Sequence[int], extra: bytes) -> bytes:
    """What vLLM hashes of one block; `extra` is CBOR already."""
    head = b"\x83" + _head(BYTES, len(parent)) + parent + _head(ARRAY, len(tokens))
    return head + _numbers(tokens) + extra


def cbor(value: Cbor) -> bytes:
    """Canonical CBOR of the few kinds of values that vLLM hashes; numbers from 0 to 2³² − 1."""
    if value is None:
        return NULL
    if isinstance(value, int):
        return _head(0, value)
    if isinstance(value, bytes):
        return _head(BYTES, len(value)) + value
    if isinstance(value, str):
        text = value.encode(errors="surrogatepass")
        return _head(TEXT, len(text)) + text
    return _head(ARRAY, len(value)) + b"".join(map(cbor, value))


def _extra_keys(adapter: str | None, cache_salt: str | None) -> bytes:
    """vLLM's extra keys of one block, encoded. An adapter `name@path` is vLLM's name and path."""
    extra: list[Cbor] = []
    if adapter is not None:
        name, _, path = adapter.partition("@")
        extra.append(("lora", name, path))
    if cache_salt is not None:
        extra.append(("cache_salt", cache_salt))
    return cbor(extra or None)


def _numbers(tokens: Iterable[int]) -> bytes:
    return b"".join([_head(0, token) for token in tokens])


def _head(major: int, number: int) -> bytes:
    """CBOR's first bytes: the kind, and a number or length in as few bytes as it needs."""
    kind = major << 5
    if number < 24:
        return bytes((kind | number,))
    if number < 1 << 8:
        return bytes((kind | 24, number))
    if number < 1 << 16:
        return bytes((kind | 25,)) + number.to_bytes(2, "big")
    return bytes((kind | 26,)) + number.to_bytes(4, "big")


NONE_HASH = sha256(cbor("vllm-none-hash")).digest()
