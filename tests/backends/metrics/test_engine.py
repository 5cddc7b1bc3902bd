"""The engine's numbers on the page: gauges up and down, counters only up, tokens by where they came from."""

from __future__ import annotations

from backends.accounts import EngineStats
from backends.metrics.engine import EngineMetrics
from tests.backends.metrics.page import build_families, values
from tests.backends.test_log_line import build_stats


def after(*stats: EngineStats) -> dict[str, float]:
    declared = build_families()
    metrics = EngineMetrics(declared)
    for one in stats:
        metrics.watch(one)
    return values(declared.registry)


def test_counters_follow_the_engines_numbers():
    """By their growth, so that they only ever rise."""
    seen = after(
        build_stats(prefix_queries=100, prefix_hits=60, prompt_tokens=90, cached_prompt_tokens=60),
        build_stats(prefix_queries=150, prefix_hits=80, prompt_tokens=150, cached_prompt_tokens=80, preemptions=2),
    )
    assert (seen["prefix_cache_queries_total"], seen["prefix_cache_hits_total"]) == (150, 80)
    assert (seen["prompt_tokens_total"], seen["prompt_tokens_cached_total"]) == (150, 80)
    assert seen["prompt_tokens_by_source_total local_compute"] == 70
    assert seen["prompt_tokens_by_source_total local_cache_hit"] == 80
    assert seen["prompt_tokens_cached_by_source_total device"] == 80
    assert seen["num_preemptions_total"] == 2


def test_gauges_show_the_moment():
    """Up and down; those who wait for somebody else's blocks are told apart from those who wait for room."""
    seen = after(
        build_stats(running=3, waiting=5, kv_usage=0.5), build_stats(running=1, waiting=3, deferred=1, kv_usage=0.25)
    )
    assert (seen["num_requests_running"], seen["num_requests_waiting"], seen["kv_cache_usage_perc"]) == (1, 3, 0.25)
    assert seen["num_requests_waiting_by_reason capacity"] == 2
    assert seen["num_requests_waiting_by_reason deferred"] == 1


def test_the_engine_is_awake():
    """It has no other state."""
    seen = after()
    assert [seen[f"engine_sleep_state {state}"] for state in ("awake", "weights_offloaded", "discard_all")] == [1, 0, 0]


def test_what_a_tier_gave_is_external_and_told_by_tier():
    """Hits by tier add up to prefix hits and external hits, as vLLM says of them."""
    seen = after(
        build_stats(
            prefix_hits=32,
            external_queries=200,
            external_hits=96,
            external_hits_by_source=(("disk", 64), ("redis", 32)),
            prompt_tokens=300,
            cached_prompt_tokens=128,
        )
    )
    assert (seen["external_prefix_cache_queries_total"], seen["external_prefix_cache_hits_total"]) == (200, 96)
    by_tier = {tier: seen[f"prompt_tokens_cached_by_source_total {tier}"] for tier in ("device", "host", "disk", "p2p")}
    assert by_tier == {"device": 32, "host": 0, "disk": 64, "p2p": 0}
    assert seen["prompt_tokens_cached_by_source_total external_unspecified"] == 32
    assert seen["prompt_tokens_by_source_total external_kv_transfer"] == 96
    assert seen["prompt_tokens_by_source_total local_cache_hit"] == 32
    assert seen["prompt_tokens_by_source_total local_compute"] == 172


def test_a_hit_is_counted_before_its_prompt_is_done():
    """The tier's hits come at admission, the prompt's tokens with its first answer token; neither is lost."""
    hit = build_stats(external_hits=64, external_hits_by_source=(("host", 64),), running=1)
    done = build_stats(
        external_hits=64, external_hits_by_source=(("host", 64),), prompt_tokens=100, cached_prompt_tokens=64
    )
    assert after(hit)["prompt_tokens_by_source_total external_kv_transfer"] == 0
    seen = after(hit, done)
    assert seen["prompt_tokens_by_source_total external_kv_transfer"] == 64
    assert seen["prompt_tokens_by_source_total local_cache_hit"] == 0
    assert seen["prompt_tokens_cached_by_source_total host"] == 64


def test_a_tiers_hit_that_was_aborted_makes_no_later_hit_external():
    """Its prompt was never done; what the next one finds in the cache is local."""
    hit = build_stats(external_hits=64, running=1)
    gone = build_stats(external_hits=64)
    other = build_stats(external_hits=64, prompt_tokens=100, cached_prompt_tokens=80)
    seen = after(hit, gone, other)
    assert seen["prompt_tokens_by_source_total external_kv_transfer"] == 0
    assert seen["prompt_tokens_by_source_total local_cache_hit"] == 80
