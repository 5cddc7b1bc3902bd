"""The rule: blocks are brought where that beats computing them, by what was measured."""

from __future__ import annotations

import pytest

from backends.tiers.rates import EXPLORE_BLOCKS, EXPLORE_SECONDS, Rates, Transfer, Worth
from tests.backends.core_builders import ManualClock

BLOCK = {"block_bytes": 1_000_000, "block_tokens": 16}


def build_worth(prefill_tokens_per_second: float, bytes_per_second: float, wait_seconds: float = 0.0):
    """The rule, with its clock and the transfer it measures by."""
    rates, transfer, clock = Rates(), Transfer(), ManualClock()
    rates.stepped(1000, 1000 / prefill_tokens_per_second)
    transfer.bytes_per_second, transfer.wait_seconds = bytes_per_second, wait_seconds
    return Worth(rates, transfer, clock), clock, transfer


def test_a_fast_place_brings_everything():
    """100 blocks: 0.1 s of reading against 1.6 s of computing."""
    worth, *_ = build_worth(prefill_tokens_per_second=1000, bytes_per_second=1e9)
    assert worth.blocks(100, **BLOCK) == 100


def test_a_slow_place_brings_nothing():
    """100 blocks: 10 s of reading against 1.6 s of computing. Once a few are tried."""
    worth, *_ = build_worth(prefill_tokens_per_second=1000, bytes_per_second=1e7)
    assert worth.blocks(100, **BLOCK) == EXPLORE_BLOCKS
    assert worth.blocks(100, **BLOCK) == 0


def test_few_blocks_are_not_worth_a_long_way():
    """Half a second of waiting pays for 100 blocks, not for 10."""
    worth, *_ = build_worth(prefill_tokens_per_second=1000, bytes_per_second=1e10, wait_seconds=0.5)
    worth.blocks(10, **BLOCK)
    assert worth.blocks(10, **BLOCK) == 0
    assert worth.blocks(100, **BLOCK) == 100


def test_a_slow_place_is_tried_again_now_and_then_and_can_recover():
    """A few blocks each time; when they come fast, all are brought again."""
    worth, clock, transfer = build_worth(prefill_tokens_per_second=1000, bytes_per_second=1e7)
    worth.blocks(100, **BLOCK)
    tries = 0
    while worth.blocks(100, **BLOCK) != 100:
        clock.sleep(EXPLORE_SECONDS)
        assert worth.blocks(100, **BLOCK) in (EXPLORE_BLOCKS, 100)
        transfer.brought(4_000_000, 0.004)
        tries += 1
        assert tries < 30
    assert tries > 1


def test_before_anything_is_measured_bringing_is_tried():
    """The start values say so for any model of a sensible size."""
    assert Worth(Rates(), Transfer(), ManualClock()).blocks(10, **BLOCK) == 10


def test_the_prefill_rate_is_that_of_steps_with_much_prefill():
    """The first one counts in full, the later ones a fifth; decoding says nothing."""
    rates = Rates()
    rates.stepped(512, 0.5)
    assert rates.prefill_tokens_per_second == pytest.approx(1024)
    rates.stepped(8, 0.05)
    rates.stepped(512, 0.0)
    assert rates.compute_seconds(2048) == pytest.approx(2.0)
    rates.stepped(512, 0.25)
    assert rates.prefill_tokens_per_second == pytest.approx(1024 + 0.2 * 1024)


def test_one_very_fast_transfer_does_not_outweigh_the_slow_ones():
    """The average is over time per byte."""
    transfer = Transfer()
    for _ in range(50):
        transfer.brought(1_000_000, 1.0)
    assert transfer.bytes_per_second == pytest.approx(1e6, rel=0.01)
    transfer.brought(1_000_000, 1e-6)
    assert transfer.bytes_per_second < 1.3e6


def test_waiting_is_part_of_the_cost():
    """A busy reader makes a tier slower."""
    transfer = Transfer()
    before = transfer.seconds(1000)
    for _ in range(20):
        transfer.waited(2.0)
    assert transfer.seconds(1000) > before + 1.9
