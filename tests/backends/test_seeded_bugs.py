"""Bugs put into the core on purpose: each is caught by a check that the suite has anyway."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest

from backends.block_map import BlockMap
from backends.block_pool import BlockPool
from backends.fork import Forks
from backends.hashing import BlockHasher
from backends.in_flight import InFlight
from backends.lending import Lending
from backends.prefix_cache import PrefixCache
from backends.shelf import Shelf
from tests.backends.test_cache_machine import run_random
from tests.backends.test_equality import test_answers_depend_on_the_tokens_alone as answers_are_right
from tests.backends.test_fetching import test_answers_do_not_depend_on_what_the_tiers_do as tiers_change_nothing
from tests.backends.test_fork import test_siblings_with_other_tokens_do_not_disturb_each_other as siblings_stay_apart
from tests.backends.test_in_flight import test_nobody_waits_for_one_that_stopped as nobody_waits_for_the_dead

Check = Callable[[], object]


@cache
def random_operations(setting: str) -> Check:
    """The random run of tests/backends/test_cache_machine.py in one of its settings, as much of it as is needed."""
    return lambda: run_random(setting, 1500, 20_000, evicting=False)


@cache
def passes(check: Check) -> bool:
    """Whether a check has nothing to say about the code as it is."""
    check()
    return True


class Bug(NamedTuple):
    """Where it is put in, what the method then does (given the right one), and which check must fail."""

    owner: type
    method: str
    wrong: Callable[[Callable], Callable]
    check: Check


def skip_one_touch(right):
    return lambda pool, block_ids, *where, **how: right(pool, block_ids[1:], *where, **how)


def free_twice(right):
    def release(prefix_cache, sequence):
        last = sequence.block_ids[-1]
        right(prefix_cache, sequence)
        prefix_cache.pool.free_blocks([last])

    return release


def evict_heads_first(right):
    """Tables are freed from their beginning, so heads are evicted before tails."""

    def release(prefix_cache, sequence):
        sequence.block_ids.reverse()
        right(prefix_cache, sequence)

    return release


def forget_the_salt(right):
    return lambda hasher, *, adapter=None, cache_salt=None: right(hasher, adapter=adapter)


def register_before_it_is_computed(right):
    def commit(prefix_cache, sequence):
        computed, sequence.computed_tokens = sequence.computed_tokens, len(sequence.token_ids)
        right(prefix_cache, sequence)
        sequence.computed_tokens = computed

    return commit


def keep_the_key(right):
    """A block that is given out again stays findable under its old content."""

    def remove(block_map, block):
        key = block.key
        last = right(block_map, block)
        block_map.insert(block, key)
        return last

    return remove


def forget_the_source(right):
    def start(forks, parent, child, *, spare_blocks):
        done = right(forks, parent, child, spare_blocks=spare_blocks)
        if done:
            forks._cache.pool.free_blocks([forks._copies[child].source])
        return done

    return start


def hit_the_last_token(right):
    return lambda prefix_cache, sequence: len(sequence.token_ids) // prefix_cache.hasher.block_tokens


def remove_for_every_copy(right):
    return lambda block_map, block: right(block_map, block) or True


def evict_pins(right):
    """A pinned block waits among the ordinary ones."""

    def add(shelf, block):
        shelf._normal.add(block)
        shelf.kept -= 1

    return add


def ignore_floors(right):
    return lambda lending, shelf: lending.total - sum(one.kept for one in lending.shelves)


def keep_registered_blocks(right):
    def release(prefix_cache, sequence):
        registered = sequence.registered_blocks
        right(prefix_cache, sequence)
        sequence.registered_blocks = registered

    return release


def keep_computed_tokens(right):
    """A preempted sequence goes on where it was, on blocks that others have written to since."""

    def admit(prefix_cache, sequence, hits, end_token, *, spare_blocks):
        done = right(prefix_cache, sequence, hits, end_token, spare_blocks=spare_blocks)
        if done and sequence.preemptions:
            sequence.computed_tokens = min(sequence.prompt_tokens, end_token) - 1
        return done

    return admit


def compare_no_parents(right):
    def find(block_map, key, parent):
        found = block_map._blocks.get(key.digest)
        blocks = found.values() if isinstance(found, dict) else () if found is None else (found,)
        return next((block for block in blocks if block.key.tokens == key.tokens), None)

    return find


def count_no_free_hits(right):
    return lambda pool, block_ids, partition="": 0


def never_let_followers_go(right):
    return lambda in_flight, leader: ()


def restore_one_block_further(right):
    return lambda prefix_cache, sequence, blocks: right(prefix_cache, sequence, blocks + 1)


def share_the_last_block(right):
    """Fork without a copy: the child goes on writing into its parent's block."""

    def start(forks, parent, child, *, spare_blocks):
        done = right(forks, parent, child, spare_blocks=spare_blocks)
        if done:
            source = forks._copies[child].source
            forks.forget(child)
            forks._cache.pool.touch([source])
            forks._cache.pool.free_blocks([child.block_ids[-1]])
            child.block_ids[-1] = source
        return done

    return start


def in_setting(setting: str) -> Check:
    return lambda: answers_are_right(setting)


BUGS = {
    "skip one touch": Bug(BlockPool, "touch", skip_one_touch, random_operations("small")),
    "free a block twice": Bug(PrefixCache, "release", free_twice, random_operations("small")),
    "evict heads before tails": Bug(PrefixCache, "release", evict_heads_first, random_operations("small")),
    "an unsalted hash": Bug(BlockHasher, "root", forget_the_salt, random_operations("small")),
    "register before the step": Bug(PrefixCache, "commit", register_before_it_is_computed, random_operations("small")),
    "keep the key of a reused block": Bug(BlockMap, "remove", keep_the_key, random_operations("small")),
    "forget to hold the source of a copy": Bug(Forks, "start", forget_the_source, random_operations("small")),
    "hit the last token": Bug(PrefixCache, "findable_blocks", hit_the_last_token, random_operations("small")),
    "removed for a copy that is not the last": Bug(
        BlockMap, "remove", remove_for_every_copy, random_operations("small")
    ),
    "evict pins": Bug(Shelf, "add", evict_pins, random_operations("pins")),
    "ignore the floors of partitions": Bug(Lending, "room", ignore_floors, random_operations("partitions")),
    "stale registered blocks after a preemption": Bug(
        PrefixCache, "release", keep_registered_blocks, random_operations("small")
    ),
    "stale computed tokens after a preemption": Bug(
        PrefixCache, "admit", keep_computed_tokens, in_setting("tiny pool, cache off")
    ),
    "compare tokens but not parents": Bug(BlockMap, "find", compare_no_parents, random_operations("one hash for all")),
    "count free hits as no use of room": Bug(BlockPool, "unheld", count_no_free_hits, random_operations("tiny")),
    "never let followers go": Bug(
        InFlight, "stopped", never_let_followers_go, lambda: nobody_waits_for_the_dead("preempted")
    ),
    "restore one block too many": Bug(
        PrefixCache, "restored", restore_one_block_further, lambda: tiers_change_nothing(changes={}, seed=0)
    ),
    "share the last block of a fork": Bug(
        Forks, "start", share_the_last_block, lambda: siblings_stay_apart(enable_prefix_caching=False)
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_is_caught(name, monkeypatch):
    """The check passes with the code as it is, and fails with the bug in it."""
    bug = BUGS[name]
    assert passes(bug.check)
    monkeypatch.setattr(bug.owner, bug.method, bug.wrong(getattr(bug.owner, bug.method)))
    with pytest.raises((AssertionError, ValueError, IndexError)):
        bug.check()
