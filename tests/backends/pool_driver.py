"""Random operations on a block pool with partitions, pins and any policy, and what must be true after each."""

from __future__ import annotations

import random

from backends.retention import Retention
from tests.backends.pool_builders import ROOT, Reader, build_chain, build_pool, found, give_back

PARTITIONS = ("support=0.2:0.5", "batch=0.3:1")
NAMES = ("", "support", "batch")
WISHES = (Retention.EVICT_FIRST, Retention.NORMAL, Retention.PRIORITY, Retention.PIN)
OPERATIONS = ("start",) * 6 + ("finish",) * 6 + ("take", "wish", "wish", "tick", "evict", "release", "reset")


class PoolDriver:
    """Requests that hold block tables, of contents that share beginnings all the time."""

    def __init__(self, blocks: int, *, partitions: bool, **settings) -> None:
        self.reader = Reader()
        names = PARTITIONS if partitions else ()
        self.pool = build_pool(blocks, *names, journal=self.reader, **settings)
        self.names = NAMES if partitions else ("",)
        self.tables: list[list[int]] = []
        self.pinned_until: dict[int, float] = {}
        self.now = 0.0
        self.evicted = self.refused = self.hits = 0

    def start(self, contents: list[int], name: str) -> None:
        """A request as the prefix cache admits it: only when it fits, hits held first."""
        pool = self.pool
        hits = found(pool, contents)
        missing = len(contents) - len(hits)
        before = pool.available(name)
        if missing + pool.unheld(hits, name) > before:
            self.refused += 1
            return
        cost = pool.unheld(hits, name)
        pool.touch(hits, name)
        assert before - pool.available(name) <= cost, "holding hits cost more than was said"
        table = hits + self._get(missing, name)
        keys, parent = build_chain(contents), ROOT
        for index, block_id in enumerate(table):
            kept = pool.key_of(block_id)
            parent = kept if kept is not None else pool.cache_full_block(block_id, keys[index], parent)
        self.tables.append(table)
        self.hits += len(hits)

    def take(self, count: int, name: str) -> None:
        """Blocks whose content is not known yet, as many as there may be: one more is refused."""
        available = self.pool.available(name)
        assert self.pool.capacity(name) >= available >= 0
        try:
            self.pool.get_new_blocks(available + 1, name)
        except ValueError:
            self.tables.append(self._get(min(count, available), name))
            return
        raise AssertionError("more blocks were given than are available")

    def _get(self, count: int, name: str) -> list[int]:
        """Take blocks, and see that nobody lost what is under its floor, and that no pin was lost."""
        before = {share.name: share for share in self.pool.occupancy()}
        pinned = [block_id for block_id in self.pinned_until if self.pool.key_of(block_id) is not None]
        taken = self.pool.get_new_blocks(count, name)
        assert len(set(taken)) == count
        for share in self.pool.occupancy():
            lost = before[share.name].cached - share.cached
            assert share.name == name or lost <= 0 or share.cached >= share.floor - share.referenced
            self.evicted += max(0, lost)
        for block_id in taken:
            assert self.pinned_until.get(block_id, 0) <= self.now, "a pinned block was taken"
            self.pinned_until.pop(block_id, None)
        assert all(self.pool.key_of(block_id) is not None for block_id in pinned if block_id not in taken)
        return taken

    def finish(self, table: list[int]) -> None:
        """Give a table back, tail first."""
        self.tables.remove(table)
        give_back(self.pool, table)

    def wish(self, table: list[int], retention: Retention, seconds: float) -> None:
        """Ask for the beginning of a table, held or just given back, to be kept or not."""
        until = self.now + seconds
        self.pool.retain(table, retention, until)

    def tick(self, seconds: float) -> None:
        """Time passes; nothing pinned is kept for longer than its time and the second it is rounded up to."""
        self.now += seconds
        self.pool.expire(self.now)

    def evict(self, block_id: int) -> None:
        """Forget one block."""
        self.pool.evict([block_id])

    def reset(self) -> None:
        """Forget everything, if nobody holds anything."""
        assert self.pool.reset() == (not any(self.tables))

    def check(self) -> None:
        """Every invariant of the pool; the journal's reader; floors that can be had now."""
        self.pool.check_integrity(self.tables)
        self.reader.check(self.pool)
        shares = self.pool.occupancy()
        for share in shares:
            assert self.pool.available(share.name) >= min(share.floor, share.ceiling) - share.referenced - share.pinned
        assert sum(share.free + share.referenced for share in shares) == self.pool.usable_blocks
        assert sum(share.cached for share in shares) == self.pool.cached_blocks_count

    def check_that_parents_are_cached(self) -> None:
        """Where no wishes, partitions or evictions by hand interfere, no cached block is an orphan."""
        for key in self.reader.live:
            assert key.parent is ROOT or any(key.parent is other for other in self.reader.live), "an orphan is cached"


def random_contents(generator: random.Random) -> list[int]:
    """A beginning out of three and a tail out of many; sometimes a scan."""
    if generator.random() < 0.2:
        return [generator.randrange(1000) for _ in range(3)]
    return [generator.randrange(3) for _ in range(generator.randint(1, 5))]


def random_operation(driver: PoolDriver, generator: random.Random, *, plain: bool) -> None:
    """One operation that is possible now; `plain` leaves out wishes and evictions by hand."""
    kind = generator.choice(OPERATIONS)
    name = generator.choice(driver.names)
    if kind == "start":
        driver.start(random_contents(generator), name)
    elif kind == "take":
        driver.take(generator.randint(0, 4), name)
    elif kind == "finish" and driver.tables:
        driver.finish(generator.choice(driver.tables))
    elif kind == "tick":
        driver.tick(generator.choice((0.1, 1.0, 30.0)))
    elif kind == "wish" and driver.tables and not plain:
        table = generator.choice(driver.tables)
        if generator.random() < 0.5:
            driver.finish(table)
        driver.wish(table, generator.choice(WISHES), generator.choice((0.5, 5.0, 50.0)))
    elif kind == "evict" and not plain:
        driver.evict(generator.randint(1, driver.pool.usable_blocks))
    elif kind == "release" and not plain:
        driver.pool.release_pins()
    elif kind == "reset" and generator.random() < 0.3:
        driver.reset()
