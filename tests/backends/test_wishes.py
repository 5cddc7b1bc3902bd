"""Retention: which wish holds, for how long, and that pins starve nobody."""

from __future__ import annotations

import pytest

from backends.retention import Retention
from tests.backends.pool_builders import build_pool, fill, found, give_back, occupancy, take, use

EVICT_FIRST, NORMAL, PRIORITY, PIN = Retention.EVICT_FIRST, Retention.NORMAL, Retention.PRIORITY, Retention.PIN


def kept(pool, contents) -> list[int]:
    """Which of these one-block contents are cached."""
    return [content for content in contents if found(pool, [content])]


def test_the_lowest_retention_goes_first():
    """Nobody's blocks, then evict-first, ordinary, those with an end, priorities; pins never."""
    pool = build_pool(6, pin_quota=0.5)
    wishes = {1: (PIN, 50.0), 2: (PRIORITY, None), 3: (PRIORITY, 50.0), 4: (NORMAL, None), 5: (EVICT_FIRST, None)}
    for content, (retention, until) in wishes.items():
        pool.retain(use(pool, [content]), retention, until)
    order, held = [], pool.get_new_blocks(1)
    assert kept(pool, wishes) == [1, 2, 3, 4, 5]
    while pool.available():
        before = kept(pool, wishes)
        held += pool.get_new_blocks(1)
        order += [content for content in before if not found(pool, [content])]
    assert order == [5, 4, 3, 2]
    assert kept(pool, wishes) == [1]
    pool.check_integrity([held])


def test_a_wish_counts_whether_it_comes_before_or_after_the_block_is_free():
    """A request may wish while it holds its blocks, or when it has given them back."""
    pool = build_pool(3)
    early = take(pool, [1])
    pool.retain(early, PRIORITY, None)
    give_back(pool, early)
    pool.retain(use(pool, [2]), PRIORITY, None)
    use(pool, [3])
    pool.get_new_blocks(1)
    assert kept(pool, (1, 2, 3)) == [1, 2]


def test_priorities_with_an_end_go_in_the_order_of_their_ends():
    """What would be ordinary soonest is given up first."""
    pool = build_pool(3)
    for content, until in ((1, 30.0), (2, 10.0), (3, 20.0)):
        pool.retain(use(pool, [content]), PRIORITY, until)
    fill(pool, (4,))
    assert kept(pool, (1, 2, 3)) == [1, 3]


def test_a_pin_outlives_any_flood_and_ends():
    """Until its time it stays; from then on it is ordinary, and the youngest."""
    pool = build_pool(8)
    pool.retain(use(pool, [1, 2]), PIN, 10.0)
    fill(pool, range(100, 150))
    assert len(found(pool, [1, 2])) == 2
    pool.expire(9.9)
    assert occupancy(pool).pinned == 2
    pool.expire(10.0)
    assert occupancy(pool).pinned == 0
    assert pool.available() == 8
    fill(pool, range(200, 206))
    assert len(found(pool, [1, 2])) == 2
    fill(pool, (300,))
    assert len(found(pool, [1, 2])) == 1
    pool.check_integrity([])


def test_a_priority_ends_too():
    """It is ordinary after its end, and its neighbours without end are not."""
    pool = build_pool(2)
    pool.retain(use(pool, [1]), PRIORITY, 10.0)
    pool.retain(use(pool, [2]), PRIORITY, None)
    pool.expire(10.0)
    fill(pool, (3,))
    assert kept(pool, (1, 2)) == [2]


def test_a_pin_that_ends_while_the_block_is_held_ends_when_it_is_given_back():
    """The block is pinned free for at most a step."""
    pool = build_pool(4)
    table = take(pool, [1])
    pool.retain(table, PIN, 10.0)
    pool.expire(20.0)
    give_back(pool, table)
    assert pool.available() == 3
    pool.expire(21.0)
    assert pool.available() == 4
    pool.check_integrity([])


def test_pins_over_the_quota_are_priorities_and_heads_are_pinned_first():
    """A quarter of the pool can be pinned; the rest of a long chain is a priority and can be evicted."""
    pool = build_pool(16)
    chain = list(range(8))
    pool.retain(use(pool, chain), PIN, 50.0)
    assert occupancy(pool).pinned == 4
    assert pool.available() == 12
    fill(pool, range(100, 150))
    assert len(found(pool, chain)) == 8, "priorities go after ordinary blocks"
    pool.get_new_blocks(12)
    assert len(found(pool, chain)) == 4
    pool.check_integrity()


def test_a_partition_has_a_quota_of_its_own():
    """A quarter of its ceiling, so that its pins cannot fill its floor."""
    pool = build_pool(40, "support=0.2:0.2")
    pool.retain(use(pool, range(8), "support"), PIN, 50.0)
    assert occupancy(pool, "support").pinned == 2
    assert pool.available("support") == 6


def test_all_pins_together_have_one_quota():
    """Two partitions of the whole pool's size pin no more than the pool allows."""
    pool = build_pool(16, "a=0:1", "b=0:1")
    pool.retain(use(pool, [1, 2, 3], "a"), PIN, 50.0)
    pool.retain(use(pool, [4, 5, 6], "b"), PIN, 50.0)
    assert (occupancy(pool, "a").pinned, occupancy(pool, "b").pinned) == (3, 1)
    pool.check_integrity([])


def test_no_pin_is_granted_where_it_would_break_a_promise():
    """A free block that could be taken back for another's floor stays so."""
    pool = build_pool(10, "support=0.3:1", pin_quota=0.9)
    cached = use(pool, [1, 2])
    held = pool.get_new_blocks(5)
    assert pool.available() == 2
    pool.retain(cached, PIN, 50.0)
    assert occupancy(pool).pinned == 2
    use(pool, [3], "support")
    more = use(pool, [4], "support")
    pool.retain(more, PIN, 50.0)
    assert pool.available("support") == 2
    assert len(pool.get_new_blocks(2, "support")) == 2
    pool.check_integrity()
    assert len(held) == 5


def test_a_free_block_is_not_pinned_when_there_is_no_room():
    """What is lent beyond the sum of the floors is cache, and cache only."""
    pool = build_pool(10, "support=0.5:1", pin_quota=0.9)
    cached = use(pool, [1, 2, 3])
    pool.get_new_blocks(5)
    assert pool.available() == 0
    pool.retain(cached, PIN, 50.0)
    assert occupancy(pool).pinned == 0
    assert pool.available("support") == 5
    pool.check_integrity()


def test_the_strongest_wish_holds():
    """A weaker one that comes later changes nothing."""
    pool = build_pool(8)
    block = use(pool, [1])
    pool.retain(block, PIN, 10.0)
    for weaker in (PRIORITY, NORMAL, EVICT_FIRST):
        pool.retain(block, weaker, 99.0)
    assert occupancy(pool).pinned == 1
    pool.expire(10.0)
    assert occupancy(pool).pinned == 0


def test_of_equal_wishes_the_one_that_ends_last_holds():
    """Each time the blocks are given back the time starts anew; it never becomes shorter."""
    pool = build_pool(8)
    block = use(pool, [1])
    for until in (10.0, 20.0, 15.0):
        pool.retain(block, PIN, until)
    pool.expire(19.9)
    assert occupancy(pool).pinned == 1
    pool.expire(20.0)
    assert occupancy(pool).pinned == 0


def test_a_hit_refutes_evict_first():
    """Found by somebody, a block is ordinary; and who comes later cannot say otherwise."""
    pool = build_pool(3)
    pool.retain(use(pool, [1]), EVICT_FIRST, None)
    fill(pool, (2, 3))
    pool.retain(use(pool, [1]), EVICT_FIRST, None)
    fill(pool, (4,))
    assert kept(pool, (1, 2, 3)) == [1, 3], "the one that was used longest ago went"


def test_evict_first_is_refuted_by_a_hit_while_the_block_is_held():
    """The second reader comes before the first one has ended."""
    pool = build_pool(2)
    use(pool, [2])
    first = take(pool, [1])
    pool.retain(first, EVICT_FIRST, None)
    second = take(pool, [1])
    give_back(pool, first)
    give_back(pool, second)
    fill(pool, (3,))
    assert kept(pool, (1, 2)) == [1]


def test_wishes_for_a_free_chain_keep_its_tail_in_front():
    """They come head first, for the quota; the tail is evicted first all the same."""
    pool = build_pool(4)
    pool.retain(use(pool, [1, 2, 3]), PRIORITY, None)
    pool.get_new_blocks(2)
    assert len(found(pool, [1, 2, 3])) == 2


def test_a_forgotten_block_is_ordinary():
    """Evicting, resetting and taking a block end all wishes for it."""
    pool = build_pool(8)
    one, two = use(pool, [1]), use(pool, [2])
    pool.retain([*one, *two], PIN, 50.0)
    pool.evict(one)
    assert occupancy(pool).pinned == 1
    assert pool.available() == 7
    assert pool.reset()
    assert occupancy(pool).pinned == 0
    assert pool.available() == 8
    pool.check_integrity([])


def test_blocks_of_nobody_can_be_wished_for_in_vain():
    """A block without content that nobody holds has nothing to keep."""
    pool = build_pool(4)
    free = pool.get_new_blocks(1)
    pool.free_blocks(free)
    pool.retain(free, PIN, 50.0)
    assert occupancy(pool).pinned == 0
    pool.check_integrity([])


def test_pins_can_be_released_for_a_request_that_nothing_else_stops():
    """All free pins at once become priorities, their tails first."""
    pool = build_pool(8)
    pool.retain(use(pool, [1, 2]), PIN, 1e6)
    fill(pool, range(100, 106))
    assert pool.available() == 6
    pool.release_pins()
    assert pool.available() == 8
    pool.get_new_blocks(7)
    assert len(found(pool, [1, 2])) == 1
    pool.check_integrity()


@pytest.mark.parametrize("wish", [(Retention.NO_STORE, None), (PIN, None)])
def test_what_is_no_wish_for_a_block_is_refused(wish):
    """A pin needs an end, and what is not stored cannot be kept."""
    pool = build_pool(4)
    with pytest.raises(ValueError, match="cannot be retained"):
        pool.retain(use(pool, [1]), *wish)
