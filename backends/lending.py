"""Which partition may take how many blocks, and from whom: the one place where the rule of partitions is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import ceil, floor

from backends.eviction.policy import EvictionPolicy
from backends.free_queue import Block
from backends.partitions import UNNAMED, PartitionOccupancy, Partitions, PartitionShare
from backends.shelf import PIN, Shelf

ROUNDING = 1e-6
"""A share of 0.07 of 100 blocks is 7 blocks."""


class Lending:
    """The partitions of a pool of `total` usable blocks.

    The rule. A block belongs to the partition that took it for as long as it is held or cached; a block without
    content that nobody holds belongs to nobody. A partition's *kept* blocks are those held or pinned, which nothing
    can take back; what it has more is cache. Anyone may hit anyone's blocks (tenants that must not have salts). A hit
    on cache of a partition above its floor takes the block over, so that who holds it pays for it; below the floor,
    pinned or held, it stays where it is. (Were it always to stay, a hit could push its owner's holdings into what is
    promised to others, and a request whose hits are such could never run.)

    1. Sum over the partitions of max(kept, floor) <= total. So whatever others hold, a partition can get to its floor
       at once: all beyond the sum is free, or cache of a partition above its floor.
    2. kept + cache <= ceiling, for each.
    3. Cache is taken from whoever is furthest above its floor, the taker included, never from another partition below
       its floor, and only when no block is nobody's. A partition at its ceiling takes from itself.

    So blocks that nobody needs are lent as cache, to anyone up to its ceiling, and come back when they are wanted.
    Where a chain spans partitions, its head may go before its tail; the tail is found again once the head is.
    """

    def __init__(
        self, total: int, partitions: Partitions, policy: Callable[[int], EvictionPolicy], pin_quota: float
    ) -> None:
        if not 0 <= pin_quota <= 1:
            raise ValueError(f"the quota of pins is a share of the pool, 0 to 1, not {pin_quota}")
        self.total = total
        self.pin_quota = int(pin_quota * total)
        self._shelves: dict[str, Shelf] = {}
        for share in (PartitionShare(UNNAMED, 0.0, 1.0), *partitions.shares):
            ceiling = ceil(share.ceiling * total - ROUNDING)
            self._shelves[share.name] = Shelf(
                share.name,
                floor=floor(share.floor * total + ROUNDING),
                ceiling=ceiling,
                pin_quota=int(pin_quota * ceiling),
                policy=policy,
            )
        self.shelves = tuple(self._shelves.values())
        self.alone = len(self.shelves) == 1

    def shelf(self, name: str) -> Shelf:
        """A partition by its name; ValueError for one that there is not."""
        shelf = self._shelves.get(name)
        if shelf is None:
            raise ValueError(f"there is no cache partition {name!r}")
        return shelf

    def capacity(self, shelf: Shelf) -> int:
        """The most blocks that a partition can ever hold."""
        promised = sum(other.floor for other in self.shelves if other is not shelf)
        return min(shelf.ceiling, self.total - promised)

    def room(self, shelf: Shelf) -> int:
        """How many more blocks a partition may keep now."""
        kept = shelf.kept
        if self.alone:
            return self.total - kept
        promised = sum(max(other.kept, other.floor) for other in self.shelves if other is not shelf)
        return min(shelf.ceiling, self.total - promised) - kept

    def promised(self, shelf: Shelf) -> int:
        """How many blocks a partition may still keep that are its own alone: up to its floor."""
        return max(0, shelf.floor - shelf.kept)

    def ceiling_binds(self, shelf: Shelf) -> bool:
        """Whether it is its ceiling that bounds a partition's room, whatever others keep."""
        return self.room(shelf) == shelf.ceiling - shelf.kept

    def in_the_way(self, shelf: Shelf) -> set[str]:
        """The partitions that would make room for this one if they kept less: itself, and those above their floor."""
        names = {shelf.name}
        if not self.ceiling_binds(shelf):
            names.update(other.name for other in self.shelves if other.kept > other.floor)
        return names

    def lender(self, taker: Shelf) -> Shelf:
        """From whom a partition takes cache; it must have room."""
        if self.alone or taker.used >= taker.ceiling:
            return taker
        lenders = [shelf for shelf in self.shelves if shelf.used > max(shelf.kept, shelf.floor)]
        return max(lenders, key=_above_floor, default=taker)

    def hand_over(self, block: Block, taker: Shelf) -> None:
        """A held block belongs to another partition from now on."""
        owner = block.owner
        cached = block.key is not None
        for shelf, change in ((owner, -1), (taker, 1)):
            shelf.used += change
            shelf.kept += change
            shelf.cached += change * cached
        block.owner = taker

    def taken_by_holding(self, blocks: Iterable[Block], taker: Shelf) -> int:
        """By how much holding these blocks, each once, lowers a partition's room: those that are cache and its own,
        and those that it takes over.
        """
        if self.alone:
            return sum(block.ref_count == 0 and block.retention is not PIN for block in blocks)
        owners = Counter(block.owner for block in blocks if block.ref_count == 0 and block.retention is not PIN)
        own = owners.pop(taker, 0)
        return own + sum(min(count, max(0, owner.used - owner.floor)) for owner, count in owners.items())

    def may_pin(self, shelf: Shelf) -> bool:
        """Whether one more block of a partition, held now, may be pinned: within both quotas, and its room."""
        pins = sum(other.pins for other in self.shelves)
        return shelf.pins < shelf.pin_quota and pins < self.pin_quota and self.room(shelf) >= 0

    def occupancy(self, nobodys: int) -> tuple[PartitionOccupancy, ...]:
        """All partitions, when `nobodys` blocks belong to none."""
        return tuple(
            PartitionOccupancy(
                shelf.name,
                free=shelf.used - shelf.held + (0 if shelf.name else nobodys),
                cached=shelf.cached,
                pinned=shelf.pins,
                referenced=shelf.held,
                floor=shelf.floor,
                ceiling=shelf.ceiling,
            )
            for shelf in self.shelves
        )

    def faults(self, nobodys: int) -> Iterator[str]:
        """What is broken: the rule, or a count."""
        for shelf in self.shelves:
            yield from shelf.faults()
        if sum(max(shelf.kept, shelf.floor) for shelf in self.shelves) > self.total:
            yield "some partition cannot get back to its floor"
        if sum(shelf.used for shelf in self.shelves) + nobodys != self.total:
            yield "the blocks of the partitions and those of nobody are not all blocks"
        if sum(shelf.pins for shelf in self.shelves) > self.pin_quota:
            yield "more blocks are pinned than the quota allows"


def _above_floor(shelf: Shelf) -> int:
    return shelf.used - shelf.floor
