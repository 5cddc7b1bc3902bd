"""The automatic rule: often and lately hit is pinned for a while, never hit goes first."""

from __future__ import annotations

import random

from backends.auto_retention import HALF_LIFE_SECONDS, PIN_SECONDS, became_hot
from backends.free_queue import Block
from tests.backends.pool_builders import build_pool, fill, found, occupancy, use


def use_often(pool, contents, *, every_seconds: float, times: int = 3) -> float:
    """Compute, and hit so many times; the time of the last hit."""
    use(pool, contents)
    now = 0.0
    for number in range(1, times + 1):
        now = number * every_seconds
        pool.expire(now)
        use(pool, contents)
    return now


def test_hits_close_together_make_a_block_hot():
    """The third within fifty seconds."""
    block = Block(1)
    assert [became_hot(block, 100.0 + second) for second in (0, 20, 40)] == [False, False, True]


def test_hits_far_apart_do_not():
    """A block hit once in a while never becomes hot, however often it was hit."""
    block = Block(1)
    assert not any(became_hot(block, 1000.0 + number * HALF_LIFE_SECONDS) for number in range(100))


def test_a_head_is_never_colder_than_its_tail():
    """Whatever the times: the head gets every hit of the tail, and more before and between."""
    generator = random.Random(4)
    for _ in range(200):
        head, tail, now = Block(1), Block(2), 0.0
        for _ in range(40):
            now += generator.expovariate(1 / 30)
            hot = became_hot(head, now)
            if generator.random() < 0.6:
                assert became_hot(tail, now) <= hot


def test_what_is_hot_is_pinned_for_a_while():
    """It survives a flood, is ordinary five minutes after its last hit, and can be hot again."""
    pool = build_pool(8, auto_retention=True)
    last = use_often(pool, [1, 2], every_seconds=10.0)
    assert occupancy(pool).pinned == 2
    fill(pool, range(100, 150))
    assert len(found(pool, [1, 2])) == 2
    pool.expire(last + PIN_SECONDS)
    assert occupancy(pool).pinned == 0
    pool.check_integrity([])


def test_the_quota_holds_for_hot_content_too():
    """Everything is hot, and a quarter of the pool is pinned."""
    pool = build_pool(16, auto_retention=True)
    for first in range(0, 16, 2):
        use_often(pool, [first, first + 1], every_seconds=0.0)
    assert occupancy(pool).pinned == 4
    assert pool.available() == 12
    pool.check_integrity([])


def test_a_scan_leaves_what_was_hit_once():
    """New content goes first, though it is younger."""
    pool = build_pool(10, auto_retention=True)
    use(pool, [1, 2])
    use(pool, [1, 2])
    fill(pool, range(100, 150))
    assert len(found(pool, [1, 2])) == 2


def test_counts_end_with_the_content():
    """A block taken for something else starts cold."""
    pool = build_pool(2, auto_retention=True, pin_quota=0.5)
    (block_id,) = use(pool, [1])
    use(pool, [1])
    use(pool, [1])
    pool.evict([block_id])
    use(pool, [2])
    use(pool, [2])
    assert occupancy(pool).pinned == 0


def test_without_the_rule_nothing_is_pinned_and_age_decides():
    """The default is plain LRU."""
    pool = build_pool(10)
    use_often(pool, [1, 2], every_seconds=0.0)
    fill(pool, range(100, 110))
    assert not found(pool, [1, 2])
    assert occupancy(pool).pinned == 0
