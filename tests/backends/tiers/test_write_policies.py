"""When blocks are copied: as they are computed, as the pool gives them up, or then if they were hit twice."""

from __future__ import annotations

from pathlib import Path

from backends.tiers.interface import MISS
from tests.backends.tiers.builders import build_chain, build_disk, build_offload, payloads_of
from tests.backends.tiers.offload_builders import build_host, contents, give_up, keys_of


def test_without_a_host_tier_the_disk_gets_it_from_the_pool(tmp_path: Path):
    """Write-back has one tier less to go through."""
    disk, blocks = build_disk(tmp_path), build_chain(3)
    offload = build_offload(None, [disk])
    give_up(offload, blocks)
    offload.close()
    assert disk.stats().blocks == 3


def test_write_through_copies_everywhere_when_it_is_computed(tmp_path: Path):
    """Giving it up later reads nothing."""
    disk, blocks = build_disk(tmp_path), build_chain(3)
    offload = build_offload(build_host(), [disk], policy="write-through")
    offload.memory.hold(blocks)
    for block_id, block in enumerate(blocks, 1):
        offload.stored(block.key, block_id)
    assert offload.stats()[0].counters.stores == 3
    offload.close()
    assert disk.stats().blocks == 3
    reads = offload.memory.reads
    for block_id, block in enumerate(blocks, 1):
        offload.overwritten(block.key, block_id)
    assert offload.memory.reads == reads


def test_write_through_copies_again_what_a_tier_dropped_meanwhile():
    """A block that the pool kept in use for long may be the host tier's oldest."""
    offload, blocks = build_offload(build_host(2), policy="write-through"), build_chain(4)
    offload.memory.hold(blocks)
    for block_id, block in enumerate(blocks, 1):
        offload.stored(block.key, block_id)
    offload.overwritten(blocks[0].key, 1)
    assert contents(offload.fetch("a", keys_of(blocks))) == payloads_of(blocks[:1])


def test_write_back_reads_nothing_before_it_must():
    """Most blocks of a busy pool are never given up."""
    offload, blocks = build_offload(build_host()), build_chain(3)
    offload.memory.hold(blocks)
    before = offload.memory.reads
    for block_id, block in enumerate(blocks, 1):
        offload.stored(block.key, block_id)
    assert offload.memory.reads == before
    assert offload.fetch("a", keys_of(blocks)) is MISS


def test_what_is_kept_already_is_not_read_again():
    """It only counts as used."""
    offload, blocks = build_offload(build_host()), build_chain(3)
    give_up(offload, blocks)
    reads = offload.memory.reads
    give_up(offload, build_chain(3))
    assert offload.memory.reads == reads


def test_selective_keeps_what_was_hit_twice():
    """Hits in the pool count, and so does being computed again."""
    offload, blocks = build_offload(build_host(), policy="selective"), build_chain(4)
    offload.memory.hold(blocks)
    for block_id, block in enumerate(blocks, 1):
        offload.stored(block.key, block_id)
    offload.seen(keys_of(blocks[:2]))
    offload.seen(keys_of(blocks[:1]))
    offload.stored(blocks[1].key, 2)
    offload.stored(blocks[2].key, 3)
    for block_id, block in enumerate(blocks, 1):
        offload.overwritten(block.key, block_id)
    assert contents(offload.fetch("a", keys_of(blocks))) == payloads_of(blocks[:2])
