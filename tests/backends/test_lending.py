"""The rule of partitions, told in numbers: floors that always can be had, ceilings, and what is lent."""

from __future__ import annotations

import pytest

from backends.partitions import PartitionOccupancy
from backends.retention import Retention
from tests.backends.pool_builders import build_pool, fill, found, give_back, occupancy, take, use


def test_without_partitions_everything_is_everybodys():
    """One partition with floor 0 and the whole pool as its ceiling."""
    pool = build_pool(10)
    assert pool.available() == pool.capacity() == 10
    assert pool.occupancy() == (PartitionOccupancy("", 10, 0, 0, 0, 0, 10),)


def test_a_partition_that_there_is_not_is_refused():
    """By its name, wherever it is used."""
    pool = build_pool(10, "support=0.3:0.6")
    for use_it in (pool.available, pool.capacity, lambda name: pool.get_new_blocks(1, name)):
        with pytest.raises(ValueError, match="there is no cache partition 'sales'"):
            use_it("sales")


def test_shares_become_blocks():
    """Floors are rounded down and ceilings up, and not by an error of a binary fraction."""
    pool = build_pool(100, "a=0.07:0.07", "b=0.29:0.295")
    assert [(share.floor, share.ceiling) for share in pool.occupancy()] == [(0, 100), (7, 7), (29, 30)]


def test_nobody_can_hold_what_is_promised_to_others():
    """The unnamed partition may hold all but the floors; a named one no more than its ceiling."""
    pool = build_pool(10, "support=0.3:0.6", "batch=0.2:1")
    assert (pool.capacity(), pool.capacity("support"), pool.capacity("batch")) == (5, 6, 7)
    assert (pool.available(), pool.available("support"), pool.available("batch")) == (5, 6, 7)


def test_a_partition_gets_to_its_floor_whatever_others_hold():
    """All others hold as much as they can, and the floor is still there at once."""
    pool = build_pool(10, "support=0.3:0.6")
    held = pool.get_new_blocks(pool.available())
    assert len(held) == 7
    assert pool.available("support") == 3
    assert len(pool.get_new_blocks(3, "support")) == 3
    assert pool.available() == pool.available("support") == 0
    pool.check_integrity()


def test_nobody_exceeds_a_ceiling():
    """Neither by holding, nor by what stays cached."""
    pool = build_pool(10, "support=0.3:0.6")
    held = pool.get_new_blocks(6, "support")
    with pytest.raises(ValueError, match="1 blocks wanted, 0 free"):
        pool.get_new_blocks(1, "support")
    pool.free_blocks(held)
    fill(pool, range(20), "support")
    assert occupancy(pool, "support").cached == 6
    assert occupancy(pool, "").free == 4
    pool.check_integrity([])


def test_free_blocks_are_lent_as_cache():
    """While the others need nothing, all of the pool holds content of whoever comes."""
    pool = build_pool(10, "support=0.3:0.6")
    fill(pool, range(10))
    assert occupancy(pool).cached == 10


def test_what_was_lent_is_given_back_when_its_owner_comes():
    """The floor is taken out of the cache of the partition above its own, oldest first."""
    pool = build_pool(10, "support=0.3:0.6")
    fill(pool, range(10))
    take(pool, [100, 101, 102], "support")
    assert occupancy(pool).cached == 7
    assert [number for number in range(10) if not found(pool, [number])] == [0, 1, 2]
    pool.check_integrity()


def test_nobody_evicts_what_is_cached_under_a_floor():
    """A flood of one partition leaves the other its floor."""
    pool = build_pool(10, "support=0.3:0.6")
    fill(pool, (100, 101, 102), "support")
    fill(pool, range(50))
    assert all(found(pool, [number]) for number in (100, 101, 102))
    assert occupancy(pool).cached == 7
    pool.check_integrity([])


def test_what_is_cached_above_a_floor_is_shared_fairly():
    """Who is furthest above its floor gives first: support keeps what is as much above as the others have."""
    pool = build_pool(10, "support=0.3:0.8")
    fill(pool, range(100, 108), "support")
    fill(pool, range(50))
    kept = occupancy(pool, "support")
    assert kept.cached - kept.floor in (3, 4)
    assert occupancy(pool).cached == 10 - kept.cached


def test_a_partition_at_its_ceiling_evicts_its_own():
    """Although blocks that nobody wants are free."""
    pool = build_pool(10, "support=0.2:0.4")
    fill(pool, (1, 2, 3, 4), "support")
    use(pool, [5], "support")
    assert not found(pool, [1])
    assert occupancy(pool).free == 6


def test_a_hit_below_a_floor_changes_no_owner():
    """A request of another partition reads the block; it stays where it was computed, held or not."""
    pool = build_pool(10, "support=0.3:0.6")
    fill(pool, [7], "support")
    table = take(pool, [7])
    assert occupancy(pool, "support").referenced == 1
    assert occupancy(pool).referenced == 0
    give_back(pool, table)
    assert occupancy(pool, "support") == PartitionOccupancy("support", 1, 1, 0, 0, 3, 6)


def test_a_hit_above_a_floor_takes_the_block_over():
    """Who holds it pays for it, or a hit could push its owner's holdings into what is promised to others."""
    pool = build_pool(10, "support=0.3:0.6")
    fill(pool, [7])
    table = take(pool, [7], "support")
    assert (occupancy(pool, "support").referenced, occupancy(pool, "support").cached) == (1, 1)
    assert occupancy(pool).cached == 0
    pool.check_integrity([table])


def test_a_hit_on_what_somebody_holds_changes_no_owner():
    """The first holder pays."""
    pool = build_pool(10, "support=0.3:0.6")
    first, second = take(pool, [7]), take(pool, [7], "support")
    give_back(pool, first)
    assert occupancy(pool).referenced == 1
    assert occupancy(pool, "support").referenced == 0
    pool.check_integrity([second])


def test_a_partition_at_its_ceiling_pays_for_a_hit_with_its_own_cache():
    """Taking a block over, it gives one of its own up; never one that the same request hits."""
    pool = build_pool(10, "support=0.2:0.4")
    use(pool, [1, 2, 3])
    fill(pool, (10, 11, 12, 13), "support")
    hits = [*found(pool, [1, 2]), *found(pool, [10])]
    assert pool.unheld(hits, "support") == 3
    pool.touch(hits, "support")
    shares = occupancy(pool, "support")
    assert (shares.referenced, shares.cached) == (3, 4)
    assert not found(pool, [11])
    assert found(pool, [10])
    pool.check_integrity([hits])


def test_holding_own_hits_uses_availability_up():
    """Each block that nobody holds counts, held ones do not."""
    pool = build_pool(10, "support=0.3:0.6")
    use(pool, [1, 2, 3], "support")
    held = take(pool, [1], "support")
    hits = found(pool, [1, 2, 3])
    assert pool.unheld(hits, "support") == 2
    before = pool.available("support")
    pool.touch(hits)
    assert before - pool.available("support") == 2
    pool.check_integrity([held, hits])


def test_holding_anothers_hits_counts_only_above_its_floor():
    """Below its floor the blocks are promised to the owner anyway."""
    pool = build_pool(10, "support=0.2:0.6")
    hits = use(pool, [1, 2, 3, 4], "support")
    assert pool.unheld(hits) == 2
    before = pool.available()
    pool.touch(hits)
    assert before - pool.available() == 2
    assert occupancy(pool).referenced == occupancy(pool, "support").referenced == 2
    pool.check_integrity([hits])


def test_free_pins_are_not_available_and_holding_them_costs_nothing():
    """A pinned block counts as kept, whether held or not."""
    pool = build_pool(8)
    table = use(pool, [1, 2])
    pool.retain(table, Retention.PIN, 10.0)
    assert pool.available() == 6
    assert pool.unheld(table) == 0
    pool.touch(table)
    assert pool.available() == 6


def test_occupancy_adds_up_to_the_pool():
    """Free and referenced over all partitions are all usable blocks."""
    pool = build_pool(20, "a=0.1:0.5", "b=0.2:0.9")
    held = take(pool, [1, 2, 3], "a")
    use(pool, [4, 5, 6, 7], "b")
    use(pool, [8, 9])
    assert sum(share.free + share.referenced for share in pool.occupancy()) == 20
    assert occupancy(pool, "a").referenced == 3
    pool.check_integrity([held])


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda shelf: setattr(shelf, "used", 9), "miscounts its free blocks: 9 used"),
        (lambda shelf: setattr(shelf, "ceiling", 1), "has 2 blocks, its ceiling is 1"),
        (lambda shelf: setattr(shelf, "kept", 1), "miscounts its free blocks"),
        (lambda shelf: setattr(shelf, "pins", 5), "has 5 pins, its quota is 1"),
        (lambda shelf: setattr(shelf, "cached", 5), "has 2 cached blocks, counted 5"),
        (lambda shelf: setattr(shelf, "floor", 11), "cannot get back to its floor"),
    ],
)
def test_the_check_finds_a_broken_partition(damage, complaint):
    """Each count kept by hand is compared with the blocks."""
    pool = build_pool(10, "support=0.3:0.6")
    use(pool, [1, 2], "support")
    damage(pool._lending.shelf("support"))
    with pytest.raises(AssertionError, match=complaint):
        pool.check_integrity([])


def test_a_quota_that_is_no_share_is_refused():
    """It is a share of the pool."""
    with pytest.raises(ValueError, match="quota of pins"):
        build_pool(10, pin_quota=1.5)
