"""A tier with its threads: loads in order, stores that never hold up anybody, and what waits to be written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.tiers.interface import FetchState
from backends.tiers.rates import Rates
from backends.tiers.slow_tier import Load, SlowTier
from backends.tiers.tier import KeptBlock
from tests.backends.core_builders import ManualClock
from tests.backends.tiers.builders import (
    PAYLOAD_BYTES,
    build_chain,
    build_disk,
    loaded,
    payload_of,
    payloads_of,
    store_all,
    wait_until,
)


class Gate:
    """Holds up a tier's `load` and `store` while it is closed."""

    def __init__(self, tier, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.waiting = threading.Event(), False
        for name in ("store", "load"):
            monkeypatch.setattr(tier, name, self._behind(getattr(tier, name)))

    def _behind(self, method):
        def wait_and_do(*arguments):
            self.waiting = not self.open.is_set()
            self.open.wait(10)
            return method(*arguments)

        return wait_and_do


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SlowTier, Gate]]:
    """A slow disk tier that does nothing until its gate is opened; its queue takes three blocks."""
    disk = build_disk(tmp_path)
    gate = Gate(disk, monkeypatch)
    slow = SlowTier(disk, Rates(), ManualClock(), lambda: None, queue_bytes=3 * PAYLOAD_BYTES)
    yield slow, gate
    gate.open.set()
    slow.close()


def kept(block) -> KeptBlock:
    return KeptBlock(block, payload_of(block))


def build_loads(slow: SlowTier, blocks) -> list[Load]:
    loads = [Load(block, slow) for block in blocks]
    for load in loads:
        load.users = 1
    return loads


def test_stores_return_at_once_and_are_found_meanwhile(gated):
    """What waits to be written is in memory, so it is a hit."""
    slow, gate = gated
    block = build_chain(1)[0]
    slow.offer(kept(block))
    assert slow.lookup(block.name) is FetchState.HIT
    assert slow.queued(block.name) == payload_of(block)
    gate.open.set()
    wait_until(lambda: slow.lookup(block.name) is FetchState.PENDING)
    assert loaded(slow.tier, [block]) == [payload_of(block)]
    assert slow.queued(block.name) is None
    assert slow.queued_bytes == 0


def test_a_full_queue_drops_stores_and_counts_them(gated):
    """Nobody waits; when the queue is shorter again, stores are taken again."""
    slow, gate = gated
    blocks = build_chain(6)
    for block in blocks[:5]:
        slow.offer(kept(block))
    assert slow.tier.counters.skipped_stores == 2
    assert slow.queued_bytes == 3 * PAYLOAD_BYTES
    assert not slow.wants(blocks[4].name)
    gate.open.set()
    wait_until(lambda: slow.queued_bytes == 0)
    slow.offer(kept(blocks[5]))
    wait_until(lambda: slow.tier.holds(blocks[5].name))
    assert [slow.tier.holds(block.name) for block in blocks] == [True, True, True, False, False, True]


def test_what_is_there_or_on_its_way_is_not_wanted(gated):
    """Neither of them is a skipped store."""
    slow, gate = gated
    block = build_chain(1)[0]
    slow.offer(kept(block))
    assert not slow.wants(block.name)
    gate.open.set()
    wait_until(lambda: slow.tier.counters.stores == 1)
    slow.offer(kept(block))
    assert (slow.tier.counters.stores, slow.tier.counters.skipped_stores) == (1, 0)


def test_loads_come_in_order_in_another_thread(gated):
    """The engine goes on meanwhile and sees each one when it is done."""
    slow, gate = gated
    blocks = build_chain(4)
    loads = build_loads(slow, blocks)
    slow.bring(loads)
    assert not any(load.done for load in loads)
    slow.tier.holds(blocks[0].name)
    gate.open.set()
    wait_until(lambda: all(load.done for load in loads))
    assert [load.payload for load in loads] == [None] * 4


def test_a_miss_ends_the_loads_after_it(tmp_path: Path):
    """All are done, so that nobody waits for ever; what came before the gap is there."""
    disk, blocks = build_disk(tmp_path), build_chain(4)
    store_all(disk, [blocks[0], blocks[1], blocks[3]])
    slow = SlowTier(disk, Rates(), ManualClock(), lambda: None)
    loads = build_loads(slow, blocks)
    slow.bring(loads)
    wait_until(lambda: all(load.done for load in loads))
    assert [load.payload and bytes(load.payload) for load in loads] == [*payloads_of(blocks[:2]), None, None]
    slow.close()


def test_a_load_that_raises_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A fault of ours must not leave a request waiting."""
    disk = build_disk(tmp_path)
    monkeypatch.setattr(disk, "load", lambda blocks: 1 / 0)
    slow = SlowTier(disk, Rates(), ManualClock(), lambda: None)
    loads = build_loads(slow, build_chain(2))
    slow.bring(loads)
    wait_until(lambda: all(load.done for load in loads))
    assert [load.payload for load in loads] == [None, None]
    slow.close()


def test_loads_that_nobody_wants_any_more_are_not_read(gated):
    """The request was aborted while its turn at the disk had not come."""
    slow, gate = gated
    blocks = build_chain(3)
    slow.offer(kept(blocks[0]))
    loads = build_loads(slow, blocks)
    slow.bring(loads)
    for load in loads:
        load.users = 0
    gate.open.set()
    wait_until(lambda: all(load.done for load in loads))
    assert slow.tier.counters.loads == 0


def test_every_load_is_told_and_measured(tmp_path: Path):
    """Progress is called, and the transfer's rate follows what was seen."""
    disk, blocks, told = build_disk(tmp_path), build_chain(3), []
    store_all(disk, blocks)
    clock = ManualClock()

    def progress() -> None:
        clock.sleep(1.0)
        told.append(clock.now)

    slow = SlowTier(disk, Rates(), clock, progress)
    before = slow.transfer.bytes_per_second
    slow.bring(build_loads(slow, blocks))
    wait_until(lambda: len(told) == 4)
    wait_until(lambda: slow.transfer.bytes_per_second != before)
    assert slow.transfer.bytes_per_second < before
    slow.close()
    assert disk.counters.load_seconds >= 3.0


def test_a_reset_also_forgets_what_waits_to_be_written(gated):
    """Nor is what is written, or what the writer was at: nothing of that is found, before the reset's turn or after.

    What comes after the order is kept, be it the same block.
    """
    slow, gate = gated
    written, *blocks = build_chain(4)
    gate.open.set()
    store_all(slow.tier, [written])
    gate.open.clear()
    for block in blocks[:2]:
        slow.offer(kept(block))
    wait_until(lambda: gate.waiting)
    assert slow.lookup(written.name) is FetchState.PENDING
    slow.reset()
    assert [slow.lookup(block.name) for block in (written, *blocks)] == [FetchState.MISS] * 4
    slow.offer(kept(written))
    gate.open.set()
    wait_until(lambda: slow.queued_bytes == 0)
    assert [slow.lookup(block.name) for block in (written, *blocks)] == [FetchState.PENDING] + [FetchState.MISS] * 3
    slow.tier.check_integrity()


def test_closing_writes_what_waits(tmp_path: Path):
    """For a few seconds at most."""
    slow = SlowTier(build_disk(tmp_path), Rates(), ManualClock(), lambda: None)
    blocks = build_chain(20)
    for block in blocks:
        slow.offer(kept(block))
    slow.close()
    assert build_disk(tmp_path).stats().blocks == 20
