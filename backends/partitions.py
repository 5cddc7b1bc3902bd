"""Named shares of the block pool: how they are written on the command line, and what must hold of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

UNNAMED = ""
"""The partition of requests that name none; it has what the others leave."""


class PartitionShare(NamedTuple):
    """A partition's name, what it can always get back to, and what it never exceeds, as shares of the pool (0..1)."""

    name: str
    floor: float
    ceiling: float


class PartitionOccupancy(NamedTuple):
    """Blocks of one partition. Blocks without content that nobody holds are listed as free under the unnamed one.

    `free` + `referenced` over all partitions is the usable pool; `cached` ones are findable, `pinned` ones not to be
    evicted, and either may be free or referenced.
    """

    name: str
    free: int
    cached: int
    pinned: int
    referenced: int
    floor: int
    ceiling: int


class Partitions(NamedTuple):
    """The shares of all named partitions."""

    shares: tuple[PartitionShare, ...] = ()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Partitions:
        """Read `name=floor:ceiling`, each a share of the pool; ValueError with a sentence for what cannot be."""
        shares = tuple(_share(text) for text in texts)
        names = [share.name for share in shares]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the cache partition {name!r} is given more than once")
        promised = sum(share.floor for share in shares)
        if promised > 1 + 1e-9:
            raise ValueError(f"the floors of the cache partitions add up to {promised:g}, more than the whole pool")
        return cls(shares)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a request may give, the unnamed one included."""
        return (UNNAMED, *(share.name for share in self.shares))


NO_PARTITIONS = Partitions()


def _share(text: str) -> PartitionShare:
    name, equals, bounds = text.partition("=")
    low, colon, high = bounds.partition(":")
    try:
        floor, ceiling = float(low), float(high)
    except ValueError:
        equals = ""
    if not (equals and colon):
        raise ValueError(f"{text!r} is no cache partition: write name=floor:ceiling, as in support=0.3:0.6")
    if name == UNNAMED or name != name.strip():
        raise ValueError(f"{text!r}: a cache partition needs a name; what names none shares the rest of the pool")
    if not (0 <= floor <= 1 and 0 < ceiling <= 1):
        raise ValueError(f"{text!r}: floor and ceiling are shares of the pool, from 0 to 1, the ceiling above 0")
    if floor > ceiling:
        raise ValueError(f"{text!r}: the floor is above the ceiling")
    return PartitionShare(name, floor, ceiling)
