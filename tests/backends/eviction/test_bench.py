"""The bench of the policies, on a small trace: the real pool hits what an independent LRU hits."""

from __future__ import annotations

from functools import cache

import pytest

from bench.block_traces import Chains, Trace, mooncake
from bench.eviction import POLICIES, check_against_outside, replay


@cache
def synthetic() -> Trace:
    return mooncake("synthetic")


@pytest.mark.parametrize(("blocks", "percent"), [(1_000, 8.6), (3_000, 19.4), (10_000, 43.2)])
def test_lru_hits_what_everybodys_lru_hits(blocks, percent):
    """3,993 requests of Mooncake's synthetic trace; figures computed by other people with other code."""
    assert 100 * replay(synthetic(), blocks, "lru").hit_rate == pytest.approx(percent, abs=0.15)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_serves_a_slice(policy):
    """No policy hits more than an endless cache, and each hits at least half of what LRU does."""
    endless = replay(synthetic(), 50_000, policy, requests=800).hit_rate
    lru = replay(synthetic(), 2_000, "lru", requests=800).hit_rate
    assert lru / 2 < replay(synthetic(), 2_000, policy, requests=800).hit_rate <= endless


def test_a_wrong_hit_rate_is_an_error():
    """The comparison with the outside figures is one that can fail."""
    with pytest.raises(AssertionError, match=r"synthetic, 3000 blocks: 25\.00 % hit"):
        check_against_outside("synthetic", [8.6, 25.0, 43.2, 63.6, 65.1])


def test_equal_beginnings_have_the_very_same_keys():
    """And the same content after another beginning has another key."""
    chains = Chains()
    one, other = chains.follow(iter("abc")), chains.follow(iter("abd"))
    assert one[:2] == other[:2]
    assert one[2] is not other[2]
    assert chains.follow(iter("b"))[0] is not one[1]
