"""The cache as a picture: states, reuse, ages, the hottest chains. Hashes only; never a token or a word of a prompt."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import nlargest
from typing import NamedTuple

from backends.block_pool import BlockPool
from backends.exchange.ages import Ages
from backends.hashing import BlockKey
from backends.partitions import PartitionOccupancy
from router.core import Json

SLICE_BLOCKS = 4096
"""Looked at between two steps: two milliseconds or so."""

USE_BOUNDS = (0, 1, 3, 7, 15, 63)
AGE_BOUNDS = (1, 10, 60, 600, 3600)


class Seen(NamedTuple):
    """One cached block as it was when looked at."""

    key: BlockKey
    uses: int
    age_seconds: float | None


def look(pool: BlockPool, ages: Ages, start: int) -> list[Seen]:
    """The cached ones of `SLICE_BLOCKS` blocks. Engine thread."""
    return [
        Seen(block.key, block.uses, ages.seconds(block.key.digest))
        for block in pool.blocks(slice(start, start + SLICE_BLOCKS))
        if block.key is not None
    ]


def slices(pool: BlockPool) -> Iterator[int]:
    """Where each look starts."""
    return iter(range(0, pool.usable_blocks + 1, SLICE_BLOCKS))


def build_map(
    pool: BlockPool, occupancy: Sequence[PartitionOccupancy], seen: Sequence[Seen], top: int
) -> dict[str, Json]:
    """The answer to GET /v1/cache/map."""
    uses = [block.uses for block in seen]
    ages = [block.age_seconds for block in seen if block.age_seconds is not None]
    return {
        "blocks": {
            "usable": pool.usable_blocks,
            "free": sum(part.free for part in occupancy),
            "referenced": sum(part.referenced for part in occupancy),
            "cached": sum(part.cached for part in occupancy),
            "pinned": sum(part.pinned for part in occupancy),
            "duplicates": pool.cached.count - pool.cached.digests_count,
        },
        "partitions": [dict(part._asdict()) for part in occupancy],
        "digest_collisions": pool.cached.collisions,
        "reuse": {
            "hits_of_cached_blocks": sum(uses),
            "never_hit": uses.count(0),
            "blocks_by_hits": histogram(uses, USE_BOUNDS),
        },
        "ages": {
            "oldest_seconds": round(max(ages, default=0.0), 3),
            "blocks_by_seconds": histogram(ages, AGE_BOUNDS),
        },
        "hottest_chains": [_chain(block) for block in hottest(seen, top)],
    }


def hottest(seen: Sequence[Seen], top: int) -> list[Seen]:
    """The ends of the `top` chains that were hit most, of equal ones the longest.

    A chain ends where hits do: a block whose child was hit as often is inside a chain.
    """
    inside = {(block.key.parent.digest, block.uses) for block in seen if block.key.parent is not None}
    ends = {block.key.digest: block for block in seen if block.uses and (block.key.digest, block.uses) not in inside}
    hot = nlargest(top, ends.values(), key=lambda block: block.uses)
    return sorted(hot, key=lambda block: (-block.uses, -depth(block.key)))


def depth(key: BlockKey) -> int:
    """Blocks from the chain's beginning to this one."""
    blocks = 0
    while key.parent is not None:
        key, blocks = key.parent, blocks + 1
    return blocks


def _chain(block: Seen) -> Json:
    age = None if block.age_seconds is None else round(block.age_seconds, 3)
    return {"hash": block.key.digest.hex(), "blocks": depth(block.key), "hits": block.uses, "age_seconds": age}


def histogram(values: Sequence[float], bounds: Sequence[int]) -> dict[str, Json]:
    """How many values are at most each bound and above the one before; "more" for the rest."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return dict(zip([*(str(bound) for bound in bounds), "more"], counts, strict=True))
