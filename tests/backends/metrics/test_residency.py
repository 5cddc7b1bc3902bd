"""How long blocks stay, on a clock that the test turns."""

from __future__ import annotations

from hashlib import sha256

import pytest

from backends.hashing import BlockKey
from backends.journal import Journal
from backends.metrics.residency import BlockResidency
from tests.backends.metrics.page import build_families, values


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def build_key(name: int) -> BlockKey:
    return BlockKey(sha256(str(name).encode()).digest(), None, b"")


def build_residency(clock: Clock, sample: float = 1.0):
    declared = build_families()
    residency: Journal = BlockResidency(declared, clock, sample)
    return residency, lambda: values(declared.registry)


def test_a_blocks_life_and_its_last_rest_are_told_when_it_goes():
    """From stored to removed, and from the last use to removed."""
    clock = Clock()
    residency, seen = build_residency(clock)
    key = build_key(1)
    residency.stored(key, 3)
    clock.now += 5
    residency.seen([key, build_key(2)])
    clock.now += 2
    residency.overwritten(key, 3)
    residency.removed(key)
    assert seen()["kv_block_lifetime_seconds_sum"] == pytest.approx(7)
    assert seen()["kv_block_idle_before_evict_seconds_sum"] == pytest.approx(2)
    assert seen()["kv_block_reuse_gap_seconds_sum"] == pytest.approx(5)


def test_a_reset_is_no_eviction():
    """Nothing is observed, and nothing is remembered."""
    residency, seen = build_residency(Clock())
    residency.stored(build_key(1), 3)
    residency.cleared()
    residency.removed(build_key(1))
    assert seen()["kv_block_lifetime_seconds_count"] == 0


@pytest.mark.parametrize("sample", [0.0, 0.1, 1.0])
def test_about_the_asked_share_of_blocks_is_watched(sample: float):
    """Chosen by their digests."""
    residency, seen = build_residency(Clock(), sample)
    for name in range(2000):
        residency.stored(build_key(name), name)
        residency.removed(build_key(name))
    assert seen()["kv_block_lifetime_seconds_count"] == pytest.approx(2000 * sample, abs=60 if 0 < sample < 1 else 0)
