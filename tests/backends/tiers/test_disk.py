"""The disk tier: bounded, in order of use, through restarts; whatever is wrong with a file is a miss and its end."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from backends.tiers.interface import FetchState
from tests.backends.core_builders import ManualClock
from tests.backends.tiers.builders import (
    PAYLOAD_BYTES,
    TierNotes,
    build_chain,
    build_disk,
    build_entries,
    loaded,
    payload_of,
    payloads_of,
    store_all,
    wait_until,
)


def test_what_was_stored_is_pending_and_comes_back(tmp_path: Path):
    """Loading needs a thread, so it is never called a hit."""
    disk, blocks = build_disk(tmp_path), build_chain(3)
    assert disk.lookup(blocks[0].name) is FetchState.MISS
    store_all(disk, blocks)
    assert [disk.lookup(block.name) for block in blocks] == [FetchState.PENDING] * 3
    assert loaded(disk, blocks) == payloads_of(blocks)
    disk.check_integrity()


def test_it_outlives_the_process(tmp_path: Path):
    """A new tier over the same folder has everything, in the order of use."""
    disk, blocks = build_disk(tmp_path), build_chain(4)
    store_all(disk, blocks)
    for age, block in enumerate(blocks):
        os.utime(disk.files.path(block.name), (100 + age, 100 + age))
    loaded(disk, blocks[:1])
    again = build_disk(tmp_path, blocks=2)
    assert [again.holds(block.name) for block in blocks] == [True, False, False, True]
    assert loaded(again, [blocks[3]]) == [payload_of(blocks[3])]
    again.check_integrity()


def test_the_least_recently_used_goes_first(tmp_path: Path):
    """Loads are uses, and so is a touch."""
    disk, blocks = build_disk(tmp_path, blocks=3), build_chain(5)
    store_all(disk, blocks[:3])
    loaded(disk, blocks[:1])
    disk.touch(blocks[1].name)
    store_all(disk, blocks[3:])
    assert [disk.holds(block.name) for block in blocks] == [False, True, False, True, True]
    disk.check_integrity()


def break_file(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "emptied":
        data.clear()
    elif how == "cut":
        del data[len(data) // 2 :]
    elif how == "cut by one":
        data.pop()
    elif how == "longer":
        data.append(0)
    elif how == "zeros":
        data[:] = bytes(len(data))
    else:
        data[{"header": 10, "parent": 40, "tokens": 85, "payload": -1}[how]] ^= 1
    path.write_bytes(data)


BREAKAGES = ("emptied", "cut", "cut by one", "longer", "zeros", "header", "parent", "tokens", "payload")


@pytest.mark.parametrize("how", BREAKAGES)
def test_a_broken_file_is_a_miss_and_removed(tmp_path: Path, how: str):
    """Counted; the blocks before it come, those after it stay where they are; the block can be stored again."""
    disk, blocks, notes = build_disk(tmp_path), build_chain(3), TierNotes()
    store_all(disk, blocks)
    break_file(disk.files.path(blocks[1].name), how)
    assert loaded(disk, blocks) == payloads_of(blocks[:1])
    assert disk.counters.broken == 1
    assert not disk.files.path(blocks[1].name).exists()
    disk.news.tell(notes)
    assert notes.kept["STORAGE"] == {blocks[0].name, blocks[2].name}
    store_all(disk, [blocks[1]])
    assert loaded(disk, blocks) == payloads_of(blocks)
    disk.check_integrity()


@pytest.mark.parametrize("how", BREAKAGES)
def test_a_file_broken_before_the_start_is_no_hit(tmp_path: Path, how: str):
    """A wrong length is removed when the folder is read, the rest when it is asked for."""
    blocks = build_chain(2)
    disk = build_disk(tmp_path)
    store_all(disk, blocks)
    break_file(disk.files.path(blocks[0].name), how)
    again = build_disk(tmp_path)
    assert loaded(again, blocks) == []
    assert again.counters.broken == 1
    assert not again.files.path(blocks[0].name).exists()
    again.check_integrity()


def test_a_file_of_a_foreign_config_is_a_miss(tmp_path: Path):
    """Even when somebody copied it into our folder."""
    disk, block = build_disk(tmp_path), build_chain(1)[0]
    foreign = build_entries("ba9876543210")
    disk.files.write(block.name, foreign.seal(block, payload_of(block)), payload_of(block))
    again = build_disk(tmp_path)
    assert again.lookup(block.name) is FetchState.PENDING
    assert loaded(again, [block]) == []
    assert again.counters.broken == 1


def test_another_blocks_file_is_a_miss(tmp_path: Path):
    """A file under a name that is not its own."""
    disk, (first, second) = build_disk(tmp_path), build_chain(2)
    store_all(disk, [first])
    disk.files.write(second.name, disk.files.path(first.name).read_bytes())
    assert loaded(build_disk(tmp_path), [second]) == []


def test_a_file_that_somebody_removed_is_a_miss_but_not_broken(tmp_path: Path):
    """Two workers may share a folder; each removes what it thinks is too much."""
    disk, blocks = build_disk(tmp_path), build_chain(2)
    store_all(disk, blocks)
    disk.files.path(blocks[0].name).unlink()
    assert loaded(disk, blocks) == []
    assert (disk.counters.broken, disk.counters.failed_loads) == (0, 0)
    assert not disk.holds(blocks[0].name)
    disk.check_integrity()


def test_a_file_that_cannot_be_read_is_a_miss(tmp_path: Path):
    """It is counted and not asked for again."""
    disk, block = build_disk(tmp_path), build_chain(1)[0]
    store_all(disk, [block])
    path = disk.files.path(block.name)
    path.unlink()
    path.mkdir()
    assert loaded(disk, [block]) == []
    assert disk.counters.failed_loads == 1
    assert disk.lookup(block.name) is FetchState.MISS


def test_a_store_that_the_disk_refuses_is_counted_and_the_disk_left_alone(tmp_path: Path):
    """A file where a folder must be: no exception, no attempt for a while, then it works again."""
    clock = ManualClock()
    disk, blocks = build_disk(tmp_path, clock=clock), build_chain(2)
    obstacle = disk.files.path(blocks[0].name).parent.parent
    obstacle.write_bytes(b"")
    disk.store(blocks[0], payload_of(blocks[0]))
    assert disk.counters.failed_stores == 1
    assert disk.holds(blocks[1].name), "resting: whoever asks is told not to bother"
    obstacle.unlink()
    clock.sleep(60)
    assert not disk.holds(blocks[1].name)
    store_all(disk, blocks)
    assert loaded(disk, blocks) == payloads_of(blocks)


def test_a_block_over_the_whole_limit_is_not_stored(tmp_path: Path):
    """Nothing is removed for it."""
    disk, block = build_disk(tmp_path, blocks=0), build_chain(1)[0]
    store_all(disk, [block])
    assert (disk.counters.failed_stores, disk.stats().blocks) == (1, 0)
    disk.check_integrity()


def test_storing_twice_writes_once(tmp_path: Path):
    """A block's file never changes."""
    disk, blocks = build_disk(tmp_path), build_chain(1)
    store_all(disk, [*blocks, *blocks])
    assert disk.counters.stores == 1


def test_a_reset_forgets_at_once_and_for_good(tmp_path: Path):
    """Also for the next start; nothing is left in the root."""
    disk, blocks, notes = build_disk(tmp_path), build_chain(3), TierNotes()
    store_all(disk, blocks)
    disk.reset()
    assert loaded(disk, blocks) == []
    assert build_disk(tmp_path).stats().blocks == 0
    disk.news.tell(notes)
    assert notes.kept["STORAGE"] == set()
    store_all(disk, blocks[:1])
    wait_until(lambda: [path.name for path in tmp_path.iterdir()] == [disk.files.folder.name])
    disk.check_integrity()


def test_the_news_of_an_earlier_runs_file_comes_when_it_is_used(tmp_path: Path):
    """Only its use shows which tokens it is about; what nobody heard of is not told to be removed either."""
    blocks, notes = build_chain(3), TierNotes()
    store_all(build_disk(tmp_path), blocks)
    again = build_disk(tmp_path)
    loaded(again, blocks[:2])
    loaded(again, blocks[:2])
    again.news.tell(notes)
    assert notes.kept["STORAGE"] == {block.name for block in blocks[:2]}


def test_its_figures(tmp_path: Path):
    """Bytes with headers against the limit, payload bytes for transfers."""
    disk, blocks = build_disk(tmp_path, blocks=2), build_chain(3)
    store_all(disk, blocks)
    loaded(disk, blocks[1:])
    stats = disk.stats()
    assert (stats.name, stats.medium, stats.blocks, stats.usage) == ("disk", "STORAGE", 2, 1.0)
    assert (stats.counters.stores, stats.counters.evicted, stats.counters.loads) == (3, 1, 2)
    assert stats.counters.store_bytes == 3 * PAYLOAD_BYTES


def test_reading_and_writing_at_once_never_gives_a_wrong_block(tmp_path: Path):
    """One thread stores and evicts, another loads: what comes is right, and the index agrees with the folder."""
    disk, blocks = build_disk(tmp_path, blocks=20), build_chain(60)
    wrong, stop = [], threading.Event()

    def read() -> None:
        generator = random.Random(1)
        while not stop.is_set():
            block = generator.choice(blocks)
            wrong.extend(block for payload in loaded(disk, [block]) if payload != payload_of(block))

    reader = threading.Thread(target=read)
    reader.start()
    generator = random.Random(2)
    while disk.counters.loads < 200 or disk.counters.evicted < 200:
        store_all(disk, [generator.choice(blocks)])
    stop.set()
    reader.join()
    assert wrong == []
    assert disk.counters.broken == 0
    disk.check_integrity()
