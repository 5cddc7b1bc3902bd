"""THE hash: how tokens become chained block hashes, for both chains and for everyone who must agree on them.

A block hash is xxh3-128 over `parent (16 bytes) ‖ the block's tokens (little-endian u32)`. The first block's
parent is a seed that binds isolation salt, model and adapter, each tagged and length-prefixed, so that no value of
one can imitate a value of another. A collision misplaces a request and nothing worse: workers hash for themselves.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from xxhash import xxh3_128_digest

HASH_VERSION = 1
"""Goes into every seed; raise it when anything about the hash changes."""

DIGEST_BYTES = 16
TOKEN_BYTES = 4


class Chain(NamedTuple):
    """Block hashes of the full blocks of a prompt, and the bytes of the last partial block."""

    blocks: list[bytes]
    tail: bytes


@lru_cache(maxsize=1024)
def seed(*, salt: str | None, model: str, adapter: str | None = None, extra: bytes = b"") -> bytes:
    """The parent of a first block: 16 bytes that differ whenever salt, model, adapter or `extra` differ."""
    parts = [f"homing/{HASH_VERSION}".encode()]
    fields = ((b"s", salt), (b"m", model), (b"a", adapter))
    parts += [_tagged(tag, value.encode(errors="surrogatepass")) for tag, value in fields if value is not None]
    if extra:
        parts.append(_tagged(b"x", extra))
    return xxh3_128_digest(b"".join(parts))


def chain(parent: bytes, tokens: bytes, block_tokens: int) -> Chain:
    """Hash the full blocks of `tokens` (packed little-endian u32), starting from `parent`."""
    step = block_tokens * TOKEN_BYTES
    blocks: list[bytes] = []
    full_bytes = len(tokens) // step * step
    for start in range(0, full_bytes, step):
        parent = xxh3_128_digest(parent + tokens[start : start + step])
        blocks.append(parent)
    return Chain(blocks, tokens[full_bytes:])


def tail_block(parent: bytes, tail: bytes) -> bytes:
    """The hash of a last partial block, tagged so that it can never equal a full block's."""
    return xxh3_128_digest(b"tail" + parent + tail)


def _tagged(tag: bytes, value: bytes) -> bytes:
    return tag + len(value).to_bytes(8, "little") + value
