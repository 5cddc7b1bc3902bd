"""Cache events of small chains, and our own chain of the same tokens, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from router.blocks import chain, seed
from router.cache_events import GPU, Removed, Stored
from router.encoders import pack
from router.known_blocks import KnownBlocks

MODEL = "m"
SIZE = 4


def tokens_of(*blocks: int, size: int = SIZE) -> list[int]:
    """One run of tokens for each named block."""
    return [block * 100 + index for block in blocks for index in range(size)]


def own_chain(*blocks: int, salt: str | None = None, adapter: str | None = None, size: int = SIZE) -> list[bytes]:
    """Our chain of a prompt of these blocks."""
    parent = seed(salt=salt, model=MODEL, adapter=adapter)
    return chain(parent, pack(tokens_of(*blocks)), size).blocks


def name_of(blocks: Sequence[int]) -> int:
    """The worker's own name of the last of a chain of blocks: anything that no other chain has."""
    return hash(tuple(blocks)) & (2**64 - 1)


def build_stored(*blocks: int, after: Sequence[int] = (), **fields: object) -> Stored:
    """A run of blocks behind `after`, as a worker tells it."""
    whole = [*after, *blocks]
    names = [name_of(whole[: len(after) + number + 1]) for number in range(len(blocks))]
    parent = name_of(after) if after else None
    return Stored(names, parent, pack(tokens_of(*blocks)), SIZE, **fields)


def build_removed(*chains: Sequence[int], medium: str = GPU) -> Removed:
    """The last block of each chain goes."""
    return Removed([name_of(blocks) for blocks in chains], medium)


def build_known(*events: object, block_tokens: int = SIZE, **more: int) -> KnownBlocks:
    known = KnownBlocks(MODEL, block_tokens, **more)
    known.apply(events)
    known.check_integrity()
    return known
