"""Who holds which block: reference counts, what is cached, and who gives way. Knows nothing of requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from backends.block_map import BlockMap
from backends.contents import Contents
from backends.eviction import policy_maker
from backends.free_queue import Block, FreeQueue
from backends.hashing import BlockKey
from backends.journal import Journal
from backends.lending import Lending
from backends.partitions import NO_PARTITIONS, UNNAMED, PartitionOccupancy, Partitions
from backends.pool_faults import block_faults
from backends.retention import Retention
from backends.shelf import EVICT_FIRST, NORMAL, PIN, Shelf
from backends.wishes import Wishes

NULL_BLOCK = 0
"""A block id that is never given out: padding in block tables may point at it."""


class BlockPool:
    """`num_blocks` blocks, of which block 0 is never used. All operations are O(1) per block and O(partitions).

    A cached block that nobody holds stays findable until it is taken for something else: free and cached are no
    opposites. Blocks without content are nobody's, and are taken first; then `Lending` says which partition gives
    one, and its `Shelf` which one it is.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        eviction: str = "lru",
        partitions: Partitions = NO_PARTITIONS,
        pin_quota: float = 0.25,
        auto_retention: bool = False,
        journal: Journal | None = None,
    ) -> None:
        if num_blocks < 2:
            raise ValueError(f"num_blocks must be at least 2 (block 0 is never used), not {num_blocks}")
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._blank = FreeQueue()
        self._contents = Contents(journal)
        policy = policy_maker(eviction, probation=auto_retention)
        self._lending = Lending(num_blocks - 1, partitions, policy, pin_quota)
        self._wishes = Wishes(self._lending)
        self._auto_retention = auto_retention
        self._now = 0.0
        self._unnamed = self._lending.shelf(UNNAMED)
        for block in self._blocks:
            block.owner = self._unnamed
        self._blocks[NULL_BLOCK].ref_count = 1
        for block in self._blocks[NULL_BLOCK + 1 :]:
            self._blank.append(block)

    @property
    def usable_blocks(self) -> int:
        """Blocks that can be given out at all."""
        return self._lending.total

    @property
    def free_blocks_count(self) -> int:
        """Blocks nobody holds: cached or not, pinned or not."""
        return self._lending.total - sum(shelf.held for shelf in self._lending.shelves)

    @property
    def cached_blocks_count(self) -> int:
        """Blocks that a lookup can find, held or not; copies count each."""
        return self._contents.count

    @property
    def cached(self) -> BlockMap:
        """What is cached, by digest; for reading only."""
        return self._contents

    def blocks(self, block_ids: slice) -> Sequence[Block]:
        """Some of the blocks, block 0 included; for reading only."""
        return self._blocks[block_ids]

    @property
    def usage(self) -> float:
        """Share of the usable blocks that somebody holds, 0..1."""
        return 1.0 - self.free_blocks_count / self._lending.total

    def available(self, partition: str = UNNAMED) -> int:
        """How many blocks a partition could take now."""
        return self._lending.room(self._shelf(partition))

    def capacity(self, partition: str = UNNAMED) -> int:
        """The most blocks that a partition can ever hold; a request that needs more can never run."""
        return self._lending.capacity(self._shelf(partition))

    def promised(self, partition: str = UNNAMED) -> int:
        """How many of these are the partition's own, whatever others want: up to its floor."""
        return self._lending.promised(self._shelf(partition))

    def ceiling_binds(self, partition: str = UNNAMED) -> bool:
        """Whether `available` is bounded by the partition's ceiling, whatever others hold."""
        return self._lending.ceiling_binds(self._shelf(partition))

    def in_the_way(self, partition: str = UNNAMED) -> set[str]:
        """The partitions with blocks that would be available to this one, were they not held or pinned."""
        return self._lending.in_the_way(self._shelf(partition))

    def unheld(self, block_ids: Iterable[int], partition: str = UNNAMED) -> int:
        """By how much `available(partition)` sinks, at most, when a request of it holds these blocks that it found."""
        blocks = self._blocks
        return self._lending.taken_by_holding((blocks[block_id] for block_id in block_ids), self._shelf(partition))

    def get_new_blocks(self, count: int, partition: str = UNNAMED) -> list[int]:
        """Take `count` blocks with undefined content, held once each; what they had cached is forgotten.

        ValueError when fewer are available; nothing is taken then.
        """
        taker = self._shelf(partition)
        room = self._lending.room(taker)
        if count > room:
            raise ValueError(f"{count} blocks wanted, {room} free")
        blank = self._blank
        taken: list[int] = []
        while len(taken) < count and blank.count and taker.used < taker.ceiling:
            block = blank.pop()
            if block is not None:
                block.owner = taker
                block.ref_count = 1
                taker.used += 1
                taker.kept += 1
                taken.append(block.block_id)
        missing = count - len(taken)
        return taken + self._evict_for(taker, missing) if missing else taken

    def _shelf(self, partition: str) -> Shelf:
        return self._lending.shelf(partition) if partition else self._unnamed

    def _evict_for(self, taker: Shelf, count: int) -> list[int]:
        lending, forget, lender, taken = self._lending, self._contents.forget, taker, []
        for _ in range(count):
            if not lending.alone:
                lender = lending.lender(taker)
            block = lender.pop()
            forget(block, True)
            if block.retention is not NORMAL:
                lender.forget_wish(block)
            if lender is not taker:
                lending.hand_over(block, taker)
            block.ref_count = 1
            taken.append(block.block_id)
        return taken

    def touch(self, block_ids: Sequence[int], partition: str = UNNAMED, *, hits: bool = True) -> None:
        """A request of `partition` holds found blocks once more; they keep their content.

        It must have checked that `unheld` of them are available. A hit block is no longer to be evicted first; whoever
        only holds them while something else is done says that these are no `hits`.
        """
        blocks, taker = self._blocks, self._shelf(partition)
        foreign = []
        for block_id in block_ids:
            block = blocks[block_id]
            if block.ref_count == 0:
                if block.owner is not taker:
                    foreign.append(block)
                elif block.queue is not None and block.retention is NORMAL:
                    block.queue.remove(block)  # as Shelf.remove does: a call less for nearly every hit
                    taker.kept += 1
                else:
                    taker.remove(block)
            block.ref_count += 1
            block.uses += hits
            if hits and block.retention is EVICT_FIRST:
                block.retention = NORMAL
        for block in foreign:  # when all others are held: taking over may evict
            self._hold_foreign(block, taker)
        if hits and self._auto_retention:
            for block_id in block_ids:
                self._wishes.hit(blocks[block_id], self._now)

    def _hold_foreign(self, block: Block, taker: Shelf) -> None:
        owner = block.owner
        taken_over = owner.used > owner.floor and block.retention is not PIN
        owner.remove(block)
        if taken_over:
            if taker.used >= taker.ceiling:
                victim = taker.pop()
                self._contents.forget(victim, True)
                self._make_blank(victim)
            self._lending.hand_over(block, taker)

    def free_blocks(self, block_ids: Iterable[int]) -> None:
        """Hold each block once less, in the order of eviction: pass a block table reversed, so its tail goes first.

        Blocks without cached content are reused before all others. ValueError for a block that nobody holds.
        """
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.ref_count == 0 or block_id == NULL_BLOCK:
                raise ValueError(f"block {block_id} is freed, but nobody holds it")
            block.ref_count -= 1
            if block.ref_count == 0:
                if block.key is None:
                    self._make_blank(block)
                else:
                    block.owner.add(block)

    def _make_blank(self, block: Block) -> None:
        owner = block.owner
        owner.used -= 1
        owner.kept -= 1
        if block.retention is not NORMAL:
            owner.forget_wish(block)
        block.uses = 0
        self._blank.prepend(block)

    def find(self, key: BlockKey, parent: BlockKey) -> tuple[int, BlockKey] | None:
        """A cached block of this content after `parent`, and the key under which it is kept."""
        block = self._contents.find(key, parent)
        if block is None or block.key is None:
            return None
        return block.block_id, block.key

    def cache_full_block(self, block_id: int, key: BlockKey, parent: BlockKey) -> BlockKey:
        """Make a computed full block findable; return the key that all copies of this content share."""
        return self._contents.add(self._blocks[block_id], key, parent)

    def evict(self, block_ids: Iterable[int]) -> None:
        """Forget what these blocks have cached, pinned or not; whoever holds them goes on holding them."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            if block.key is None:
                continue
            if block.ref_count == 0:
                block.owner.remove(block)
            self._contents.forget(block, False)
            if block.ref_count == 0:
                self._make_blank(block)

    def reset(self) -> bool:
        """Forget everything cached; False, and nothing done, while any block is held."""
        if self.free_blocks_count != self._lending.total:
            return False
        cached = [block for block in self._blocks if block.key is not None]
        for block in cached:
            block.owner.remove(block)
        self._contents.clear(cached)
        for block in cached:
            self._make_blank(block)
        return True

    def key_of(self, block_id: int) -> BlockKey | None:
        """The key under which a block is cached, or None."""
        return self._blocks[block_id].key

    def retain(self, block_ids: Iterable[int], retention: Retention, until_seconds: float | None = None) -> None:
        """Say what is to happen to these blocks, a block table's beginning, when they are free: at once if they are.

        Which of several wishes holds is in `Wishes`; they end with the content. ValueError for a PIN without end, and
        for NO_STORE, which is no property of a block.
        """
        if retention is Retention.NO_STORE or (retention is PIN and until_seconds is None):
            raise ValueError(f"blocks cannot be retained as {retention.value} until {until_seconds}")
        loose = []
        for block_id in block_ids:  # heads first: the quota is for them
            block = self._blocks[block_id]
            if block.queue is self._blank:
                continue
            if block.queue is not None:
                block.owner.remove(block)
                loose.append(block)
            self._wishes.wish(block, retention, until_seconds)
        for block in reversed(loose):  # tails first: they are to be evicted first
            block.owner.add(block)

    def expire(self, now: float) -> None:
        """Pins and priorities whose end has come are ordinary from now on. O(expired); call it once a step."""
        self._now = now
        for shelf in self._lending.shelves:
            shelf.expire(now)

    def release_pins(self, partition: str = UNNAMED) -> None:
        """Make the free pins priorities that are in a partition's way, for a request that nothing else stops."""
        for name in self.in_the_way(partition):
            self._lending.shelf(name).release_pins()

    def occupancy(self) -> tuple[PartitionOccupancy, ...]:
        """What each partition has, the unnamed one first."""
        return self._lending.occupancy(self._blank.count)

    def check_integrity(self, holders: Iterable[Sequence[int]] | None = None) -> None:
        """Raise AssertionError on any broken invariant; with `holders` (block tables) also count the references."""
        faults = block_faults(self._blocks, self._lending.shelves, self._contents.count, holders)
        parts = (self._blank.faults(), self._contents.faults(), self._lending.faults(self._blank.count), faults)
        for fault in chain(*parts):
            raise AssertionError(fault)
