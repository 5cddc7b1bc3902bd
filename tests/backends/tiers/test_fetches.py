"""Fetches: one load per block for everybody, room for so many, and accounts that add up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.tiers.fetches import LEAST_PATIENCE_SECONDS, Arrived, Fetch, Fetches
from backends.tiers.host import HostTier
from backends.tiers.interface import MISS, PENDING, FetchState
from backends.tiers.rates import Rates
from backends.tiers.slow_tier import Load, SlowTier
from backends.tiers.tier import TierNews
from tests.backends.core_builders import ManualClock
from tests.backends.tiers.builders import (
    BLOCK_TOKENS,
    PAYLOAD_BYTES,
    build_chain,
    build_disk,
    payload_of,
    payloads_of,
    store_all,
    wait_until,
)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowTier]:
    """A disk tier with a chain of eight blocks."""
    disk = build_disk(tmp_path)
    store_all(disk, build_chain(8))
    tier = SlowTier(disk, Rates(), ManualClock(), lambda: None)
    yield tier
    tier.close()


def build_host(blocks) -> HostTier:
    host = HostTier(100 * PAYLOAD_BYTES, TierNews())
    store_all(host, blocks)
    return host


def build_fetches(host: HostTier | None = None, staging_blocks: int = 100, clock=float) -> Fetches:
    return Fetches(host, staging_bytes=staging_blocks * PAYLOAD_BYTES, rates=Rates(), clock=clock)


def begin(fetches: Fetches, request_id: str, blocks, *slow: SlowTier) -> Fetch | None:
    fetch = fetches.begin(request_id, blocks, slow, block_bytes=PAYLOAD_BYTES, block_tokens=BLOCK_TOKENS)
    fetches.check_integrity()
    return fetch


def test_a_fetch_waits_for_all_its_parts(slow: SlowTier):
    """Then it says what came, in order, and says it again."""
    first, second, third = build_chain(3)
    loads = [Load(second, slow), Load(third, slow)]
    fetch = Fetch(first.name, [Arrived(payload_of(first), build_host([])), *loads])
    assert fetch.state() is PENDING
    loads[0].payload, loads[0].done = payload_of(second), True
    assert fetch.state() is PENDING
    loads[1].done = True
    state = fetch.state()
    assert (state.state, state.payloads, state.source) == (FetchState.HIT, payloads_of([first, second]), "disk")
    assert fetch.state() is state
    assert slow.tier.counters.hits == 1


def test_a_fetch_whose_first_part_failed_is_a_miss(slow: SlowTier):
    """What comes after a gap is of no use."""
    loads = [Load(block, slow) for block in build_chain(2)]
    for load in loads:
        load.done = True
    loads[1].payload = b"of no use"
    assert Fetch(b"", loads).state() is MISS


def test_a_fetch_that_hangs_ends_with_what_has_come(slow: SlowTier, monkeypatch: pytest.MonkeyPatch):
    """A disk may never answer: the rest is computed, and for a while nothing more is asked of it."""
    go_on, blocks, clock = threading.Event(), build_chain(8), ManualClock()
    load = slow.tier.load

    def hang_after_two(some):
        yield from load(some[:2])
        go_on.wait(10)

    monkeypatch.setattr(slow.tier, "load", hang_after_two)
    fetches = build_fetches(clock=clock)
    fetch = begin(fetches, "a", blocks, slow)
    wait_until(lambda: fetch.parts[1].done)
    assert fetch.state() is PENDING
    clock.sleep(LEAST_PATIENCE_SECONDS)
    assert [bytes(payload) for payload in fetch.state().payloads] == payloads_of(blocks[:2])
    fetches.forget("a")
    assert begin(fetches, "b", build_chain(8), slow).state() is MISS
    go_on.set()


def test_memory_comes_before_disk(slow: SlowTier):
    """A block in both is not read."""
    blocks = build_chain(8)
    fetch = begin(build_fetches(build_host(blocks[:3])), "a", blocks, slow)
    assert [type(part) for part in fetch.parts] == [Arrived] * 3 + [Load] * 5


def test_two_requests_with_one_beginning_have_one_load_per_block(slow: SlowTier):
    """Each load counts its users, and goes with the last."""
    fetches, blocks = build_fetches(), build_chain(8)
    one, other = begin(fetches, "a", blocks[:5], slow), begin(fetches, "b", build_chain(8), slow)
    assert other.parts[:5] == one.parts
    assert [part.users for part in other.parts] == [2] * 5 + [1] * 3
    fetches.forget("b")
    fetches.check_integrity()
    assert [part.users for part in one.parts] == [1] * 5
    fetches.reset()
    assert [part.users for part in one.parts] == [0] * 5
    assert fetches.get("a") is None


def test_a_load_that_failed_is_tried_anew_for_the_next_request(slow: SlowTier):
    """The block may have been stored again meanwhile."""
    fetches, blocks = build_fetches(), build_chain(2)
    slow.tier.files.path(blocks[0].name).write_bytes(b"broken")
    fetch = begin(fetches, "a", blocks, slow)
    wait_until(lambda: fetch.state() is MISS)
    store_all(slow.tier, blocks[:1])
    again = begin(fetches, "b", blocks, slow)
    wait_until(lambda: again.state().state is FetchState.HIT)
    assert [bytes(payload) for payload in again.state().payloads] == payloads_of(blocks)


def test_the_room_for_loads_is_bounded(slow: SlowTier):
    """The first gets what there is, the next one has to come again, and what is in memory needs no room."""
    blocks = build_chain(8)
    fetches = build_fetches(build_host(build_chain(1, seed=1)), staging_blocks=5)
    assert len(begin(fetches, "a", blocks, slow).parts) == 5
    assert begin(fetches, "b", blocks[5:], slow) is None
    assert len(begin(fetches, "c", build_chain(1, seed=1), slow).parts) == 1
    fetches.forget("a")
    assert len(begin(fetches, "b", blocks[5:], slow).parts) == 3


def test_a_wrong_account_is_noticed(slow: SlowTier):
    """The check itself is worth something."""
    fetches = build_fetches()
    fetch = begin(fetches, "a", build_chain(2), slow)
    fetch.parts[1].users = 2
    with pytest.raises(AssertionError, match="counts 2 users, 1 fetches"):
        fetches.check_integrity()
    fetch.parts[1].users = 0
    with pytest.raises(AssertionError, match="no users"):
        fetches.check_integrity()
