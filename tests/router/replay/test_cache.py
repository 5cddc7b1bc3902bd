"""The exact LRU with pins: the same as a plain list, and sound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.replay.cache import PinnedCache
from tests.router.replay.plain_models import PlainCache
from tests.router.replay.replay_builders import build_chain

NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=6).map(".".join)


def build_cache(capacity: int, *used: str) -> PinnedCache:
    """A cache that has answered these prompts one after the other."""
    cache = PinnedCache(capacity)
    for name in used:
        cache.pin(build_chain(name))
        cache.unpin(build_chain(name))
    return cache


@given(st.integers(1, 12), st.lists(st.tuples(NAMES, st.integers(0, 3)), max_size=40))
def test_it_is_a_plain_lru(capacity, steps):
    """Any pins and unpins: the same blocks are held, the same prefixes found, as in a list searched block by block."""
    cache, plain, open_chains = PinnedCache(capacity), PlainCache(capacity), []
    for name, leave_open in steps:
        chain = build_chain(name)
        assert cache.match(chain) == plain.match(chain)
        cache.pin(chain)
        plain.pin(chain)
        open_chains.append(chain)
        while len(open_chains) > leave_open:
            ended = open_chains.pop(0)
            cache.unpin(ended)
            plain.unpin(ended)
        cache.check_integrity()
        assert len(cache) == len(set(plain.idle) | set(plain.pinned))
        assert cache.pinned_blocks == len(set(plain.pinned))
        assert cache.unpinned(chain) == sum(block not in plain.pinned for block in chain)
        assert all(block in cache for block in plain.idle + plain.pinned)


@given(st.integers(1, 12), st.lists(NAMES, max_size=30))
def test_a_block_is_held_only_with_its_whole_prefix(capacity, names):
    """What makes the bisection right."""
    cache = build_cache(capacity, *names)
    for name in names:
        held = [block in cache for block in build_chain(name)]
        assert held == sorted(held, reverse=True)


def test_the_oldest_ends_go_first():
    """Five blocks hold two chains of three with a common root; a third chain pushes the older leaf out."""
    cache = build_cache(5, "a.b.c", "a.d.e", "x")
    assert cache.match(build_chain("a.b.c")) == 2
    assert cache.match(build_chain("a.d.e")) == 3
    assert cache.match(build_chain("x")) == 1


def test_what_decodes_is_never_evicted():
    """Pinned blocks may exceed the capacity; they fall to it when they are let go."""
    cache = PinnedCache(2)
    cache.pin(build_chain("a.b.c"))
    cache.pin(build_chain("x"))
    assert len(cache) == 4
    cache.unpin(build_chain("a.b.c"))
    assert (len(cache), cache.match(build_chain("a.b.c"))) == (2, 1)


def test_looking_changes_nothing():
    """A match does not make blocks newer."""
    cache = build_cache(2, "a", "b")
    assert cache.match(build_chain("a")) == 1
    cache.pin(build_chain("c"))
    assert b"a" not in cache


@pytest.mark.parametrize("fault", ["both", "count", "bound"])
def test_an_unsound_cache_is_found_out(fault):
    """Each broken invariant is named."""
    cache = build_cache(2, "a")
    if fault == "bound":
        cache.capacity_blocks = 0
    else:
        cache._pins[b"a" if fault == "both" else b"z"] = 1 if fault == "both" else 0
    with pytest.raises(AssertionError):
        cache.check_integrity()
