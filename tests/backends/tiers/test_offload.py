"""The tiers together: what comes back from where, and who shares whose load."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from backends.hashing import BlockHasher
from backends.tiers.entry import named
from backends.tiers.host import HostTier
from backends.tiers.interface import MISS, FetchState
from backends.tiers.rates import EXPLORE_BLOCKS
from tests.backends.core_builders import short_digest
from tests.backends.tiers.builders import (
    BLOCK_TOKENS,
    DIGEST,
    PAYLOAD_BYTES,
    TierNotes,
    build_chain,
    build_disk,
    build_keys,
    build_offload,
    payload_of,
    payloads_of,
    store_all,
    wait_until,
)
from tests.backends.tiers.offload_builders import build_host, contents, fetched, give_up, keys_of


def test_nothing_is_found_in_empty_tiers(tmp_path: Path):
    """At once, without a thread."""
    offload = build_offload(build_host(), [build_disk(tmp_path)])
    assert offload.fetch("a", build_keys(3)) is MISS
    assert offload.fetch("a", []) is MISS
    offload.close()


def test_what_the_pool_gave_up_is_in_host_memory():
    """The fetch is over with the first question."""
    offload, blocks = build_offload(build_host()), build_chain(3)
    give_up(offload, blocks)
    fetch = offload.fetch("a", build_keys(3))
    assert (fetch.state, contents(fetch), fetch.source) == (FetchState.HIT, payloads_of(blocks), "host")
    assert offload.fetch("a", build_keys(3)) is fetch


def test_what_the_host_drops_goes_to_the_disk_and_comes_back_from_both(tmp_path: Path):
    """The source is the slowest one that took part."""
    disk = build_disk(tmp_path)
    offload, blocks = build_offload(build_host(2), [disk]), build_chain(5)
    give_up(offload, blocks)
    wait_until(lambda: disk.stats().blocks == 3)
    assert [disk.holds(block.name) for block in blocks] == [True] * 3 + [False] * 2
    fetch = fetched(offload, blocks)
    assert (contents(fetch), fetch.source) == (payloads_of(blocks), "disk")
    host_stats, disk_stats = offload.stats()
    assert (host_stats.counters.hits, disk_stats.counters.hits) == (2, 3)
    offload.close()


def test_a_disk_fetch_is_pending_first(tmp_path: Path):
    """The engine goes on meanwhile."""
    disk, blocks = build_disk(tmp_path), build_chain(3)
    store_all(disk, blocks)
    offload = build_offload(None, [disk])
    assert offload.fetch("a", keys_of(blocks)).state is FetchState.PENDING
    assert contents(fetched(offload, blocks)) == payloads_of(blocks)
    offload.close()


def test_requests_share_the_load_of_a_common_beginning(tmp_path: Path):
    """Two at once read each block once; either may go without harm to the other."""
    disk, blocks = build_disk(tmp_path), build_chain(6)
    store_all(disk, blocks)
    offload = build_offload(None, [disk])
    offload.fetch("a", keys_of(blocks[:4]))
    offload.fetch("b", build_keys(6))
    offload.check_integrity()
    offload.forget("a")
    assert contents(fetched(offload, blocks, "b")) == payloads_of(blocks)
    assert disk.counters.loads <= 6
    assert contents(fetched(offload, blocks[:4], "c")) == payloads_of(blocks[:4])
    assert disk.counters.loads <= 6, "what lies ready for b serves c"
    offload.close()


def test_forgetting_frees_what_was_brought(tmp_path: Path):
    """The room for loads is for those who wait."""
    disk, blocks = build_disk(tmp_path), build_chain(4)
    store_all(disk, blocks)
    offload = build_offload(None, [disk], staging_bytes=4 * PAYLOAD_BYTES)
    fetched(offload, blocks, "a")
    other = build_chain(2, seed=1)
    store_all(disk, other)
    assert offload.fetch("b", keys_of(other)) is MISS
    offload.forget("a")
    offload.forget("nobody")
    assert contents(fetched(offload, other, "b")) == payloads_of(other)
    offload.close()


def test_another_first_key_starts_anew(tmp_path: Path):
    """The pool found more, or less, than the time before."""
    disk, blocks = build_disk(tmp_path), build_chain(4)
    store_all(disk, blocks)
    offload = build_offload(None, [disk])
    assert contents(fetched(offload, blocks[2:])) == payloads_of(blocks[2:])
    assert contents(fetched(offload, blocks)) == payloads_of(blocks)
    offload.close()


def test_a_broken_block_ends_the_fetch_before_it(tmp_path: Path):
    """And a broken first one is a miss for good."""
    disk, blocks = build_disk(tmp_path), build_chain(4)
    store_all(disk, blocks)
    disk.files.path(blocks[2].name).write_bytes(b"broken")
    offload = build_offload(None, [disk])
    assert contents(fetched(offload, blocks)) == payloads_of(blocks[:2])
    disk.files.path(blocks[0].name).write_bytes(b"broken")
    assert fetched(offload, blocks, "b").state is FetchState.HIT, "still shared with a"
    offload.forget("a")
    offload.forget("b")
    assert fetched(offload, blocks, "b") == MISS
    offload.close()


def test_a_tier_that_is_slower_than_computing_is_left_out(tmp_path: Path):
    """Only a few blocks are tried, and what is in memory still comes."""
    disk, blocks = build_disk(tmp_path), build_chain(20)
    store_all(disk, blocks[1:])
    offload = build_offload(build_host(), [disk])
    give_up(offload, blocks[:1])
    offload.stepped(1000, 1e-3)
    slow = offload._slow[0]
    slow.transfer.bytes_per_second = 10.0
    assert len(fetched(offload, blocks, "a").payloads) == 1 + EXPLORE_BLOCKS
    offload.forget("a")
    slow.transfer.bytes_per_second = 10.0
    fetch = offload.fetch("b", keys_of(blocks))
    assert (contents(fetch), fetch.source) == (payloads_of(blocks[:1]), "host")
    offload.close()


def test_a_reset_forgets_everything_also_what_is_on_its_way(tmp_path: Path):
    """In every tier, in the queues, and for every request."""
    disk, blocks = build_disk(tmp_path), build_chain(6)
    offload = build_offload(build_host(2), [disk])
    give_up(offload, blocks)
    offload.fetch("a", keys_of(blocks))
    offload.reset()
    assert fetched(offload, blocks, "a") == MISS
    offload.close()
    assert disk.stats().blocks == 0
    offload.check_integrity()


def test_the_journal_hears_of_all_tiers_in_the_engines_thread(tmp_path: Path):
    """When a step is over, never in between."""
    disk, notes, threads = build_disk(tmp_path), TierNotes(), set()
    host = HostTier(2 * PAYLOAD_BYTES, disk.news)
    offload, blocks = build_offload(host, [disk], news=disk.news, journal=notes), build_chain(4)
    stored = notes.stored
    notes.stored = lambda key, medium: (threads.add(threading.get_ident()), stored(key, medium))
    give_up(offload, blocks)
    wait_until(lambda: disk.stats().blocks == 2)
    assert notes.told == []
    offload.stepped(0, 0.0)
    assert notes.kept == {"CPU": {b.name for b in blocks[2:]}, "STORAGE": {b.name for b in blocks[:2]}}
    assert threads == {threading.get_ident()}
    offload.close()


def test_colliding_digests_never_give_another_blocks_content(tmp_path: Path):
    """A hash of 3 bits: names and the kept tokens tell the blocks apart, in memory and on disk."""
    hasher = BlockHasher(BLOCK_TOKENS, short_digest(3))
    chains = [named(build_keys(4, seed, hasher=hasher)) for seed in range(30)]
    disk = build_disk(tmp_path, blocks=1000)
    offload = build_offload(build_host(30), [disk])
    for chain in chains[:15]:
        give_up(offload, chain)
    wait_until(lambda: offload._slow[0].queued_bytes == 0)
    for number, chain in enumerate(chains):
        got = contents(fetched(offload, chain, f"{number}"))
        assert got == (payloads_of(chain) if number < 15 else [])
    offload.close()


def test_waiting_ends_with_the_time_or_with_progress(tmp_path: Path):
    """Nothing on its way is no reason to wait for ever."""
    offload = build_offload(None, [build_disk(tmp_path)])
    offload.wait(0.001)
    threading.Timer(0.01, offload._progress.set).start()
    offload.wait(60)
    offload.close()


@pytest.mark.parametrize("policy", ["write-back", "write-through", "selective"])
def test_the_other_runners_config_finds_nothing(tmp_path: Path, policy: str):
    """A folder written for another model, or another block size, is another folder or a miss."""
    blocks = build_chain(2)
    store_all(build_disk(tmp_path, digest="ba9876543210"), blocks)
    offload = build_offload(None, [build_disk(tmp_path)], policy=policy)
    assert fetched(offload, blocks) == MISS
    assert offload.memory.kv_digest == DIGEST
    assert payload_of(blocks[0]) != payload_of(blocks[1])
    offload.close()
