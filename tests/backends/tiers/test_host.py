"""The host tier: bounded bytes, least recently used first, and news of it."""

from __future__ import annotations

from backends.tiers.host import HostTier
from backends.tiers.interface import FetchState
from backends.tiers.tier import TierNews
from tests.backends.tiers.builders import (
    PAYLOAD_BYTES,
    TierNotes,
    build_chain,
    build_keys,
    loaded,
    payloads_of,
    store_all,
)


def build_host(blocks: int = 3) -> HostTier:
    host = HostTier(blocks * PAYLOAD_BYTES, TierNews())
    host.news = host._news
    return host


def test_what_was_stored_is_a_hit_and_comes_back():
    """The same bytes, at once."""
    host, blocks = build_host(), build_chain(3)
    store_all(host, blocks)
    assert [host.lookup(block.name) for block in blocks] == [FetchState.HIT] * 3
    assert loaded(host, blocks) == payloads_of(blocks)
    host.check_integrity()


def test_an_equal_chain_of_other_objects_is_found():
    """A block is known by its content."""
    host = build_host()
    store_all(host, build_chain(2))
    again = build_chain(2)
    assert again[0].key is not build_keys(2)[0]
    assert loaded(host, again) == payloads_of(again)


def test_loading_ends_at_the_first_miss():
    """What comes after a gap is of no use."""
    host, blocks = build_host(), build_chain(3)
    store_all(host, [blocks[0], blocks[2]])
    assert loaded(host, blocks) == payloads_of(blocks[:1])


def test_the_least_recently_used_goes_first():
    """Loading and storing again are uses."""
    host, blocks = build_host(3), build_chain(5)
    store_all(host, blocks[:3])
    loaded(host, blocks[:1])
    store_all(host, [blocks[1]])
    store_all(host, [blocks[3]])
    assert [host.holds(block.name) for block in blocks] == [True, True, False, True, False]
    host.touch(blocks[0].name)
    store_all(host, [blocks[4]])
    assert [host.holds(block.name) for block in blocks] == [True, False, False, True, True]
    host.check_integrity()


def test_what_had_to_go_is_handed_on_once():
    """For the tiers below."""
    host, blocks = build_host(1), build_chain(3)
    store_all(host, blocks)
    assert [kept.block for kept in host.take_dropped()] == blocks[:2]
    assert host.take_dropped() == []


def test_a_block_over_the_whole_limit_is_not_kept():
    """It is handed on like any other."""
    host, block = HostTier(PAYLOAD_BYTES - 1, TierNews()), build_chain(1)[0]
    store_all(host, [block])
    assert not host.holds(block.name)
    assert len(host.take_dropped()) == 1
    host.check_integrity()


def test_the_news_are_exact():
    """Stored once however often; removed when it goes; cleared on a reset."""
    host, blocks, notes = build_host(2), build_chain(4), TierNotes()
    store_all(host, [*blocks, blocks[3]])
    host.news.tell(notes)
    assert notes.kept["CPU"] == {block.name for block in blocks[2:]}
    host.reset()
    host.news.tell(notes)
    assert notes.kept["CPU"] == set()
    assert loaded(host, blocks) == []
    host.check_integrity()


def test_its_figures():
    """Blocks, bytes, and how many went."""
    host, blocks = build_host(2), build_chain(3)
    store_all(host, blocks)
    loaded(host, blocks[1:])
    stats = host.stats()
    assert (stats.name, stats.medium, stats.blocks, stats.used_bytes) == ("host", "CPU", 2, 2 * PAYLOAD_BYTES)
    assert (stats.usage, stats.counters.stores, stats.counters.evicted, stats.counters.loads) == (1.0, 3, 1, 2)
    assert stats.counters.load_bytes == 2 * PAYLOAD_BYTES
