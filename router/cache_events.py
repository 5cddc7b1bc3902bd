"""What workers tell of their caches, decoded: the nouns of KV events, whichever engine and encoding they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

WorkerHash = int | bytes
"""A block's name by the worker that holds it: opaque, and different at every worker."""

GPU = "GPU"
CPU = "CPU"
DISK = "STORAGE"

MEDIA = {None: GPU, GPU: GPU, CPU: CPU, "CPU_PINNED": CPU, DISK: DISK, "DISK": DISK}
"""Names on the wire, to the media told apart. Others (SGLang's EXTERNAL) are not the worker's own: passed over."""


class Stored(NamedTuple):
    """Consecutive blocks of one chain can be found now.

    `tokens` are `block_tokens` for each of `block_hashes`, packed as little-endian u32, or none at all where a tier
    tells only of blocks that were told before. `parent` None: the chain starts here. `extra_keys` holds, per block,
    what beside the tokens makes it what it is, as the worker lists it; None for a block without.
    """

    block_hashes: Sequence[WorkerHash]
    parent: WorkerHash | None
    tokens: bytes
    block_tokens: int
    extra_keys: Sequence[Sequence[Any] | None] = ()
    adapter: str | None = None
    salt: str | None = None
    medium: str = GPU


class Removed(NamedTuple):
    """A copy of each of these blocks left this medium."""

    block_hashes: Sequence[WorkerHash]
    medium: str = GPU


class Cleared(NamedTuple):
    """Everything is gone, from all media."""


CacheEvent = Stored | Removed | Cleared


class Extra(NamedTuple):
    """What a chain's first block was seeded with, and what else (images, embeddings) its blocks are made of."""

    salt: str | None
    others: Sequence[Any]


def read_extra(keys: Sequence[Any] | None, adapter: str | None, *, first: bool) -> Extra:
    """Sort a block's extra keys: the adapter's name is known, and a text in a chain's first block is the salt.

    vLLM publishes `(adapter, (image, offset)…, salt, embeddings)` without tags; tagged pairs are read as well.
    """
    salt: str | None = None
    others: list[Any] = []
    for key in keys or ():
        if isinstance(key, str) and key == adapter:
            continue
        if isinstance(key, list | tuple) and key and key[0] == "lora":
            continue
        tagged_salt = isinstance(key, list | tuple) and len(key) == 2 and key[0] == "cache_salt"
        if first and salt is None and (tagged_salt or isinstance(key, str)):
            salt = str(key[1] if tagged_salt else key)
        else:
            others.append(key)
    return Extra(salt, others)
