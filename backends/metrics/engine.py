"""The engine's gauges and counters: queue, cache, tokens by where they came from."""

from __future__ import annotations

from collections.abc import Mapping

from backends.accounts import EngineStats
from backends.metrics.families import Families

_COUNTERS: Mapping[str, tuple[str, str]] = {
    "prefix_queries": ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens."),
    "prefix_hits": ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens."),
    "external_queries": (
        "external_prefix_cache_queries",
        "Tokens asked of the tiers below the cache (and of other workers), beyond what the cache had.",
    ),
    "external_hits": ("external_prefix_cache_hits", "Tokens that came from the tiers below the cache."),
    "preemptions": ("num_preemptions", "Cumulative number of preemption from the engine."),
    "prompt_tokens": ("prompt_tokens", "Number of prefill tokens processed."),
    "cached_prompt_tokens": ("prompt_tokens_cached", "Number of cached prompt tokens (local + external)."),
    "generation_tokens": ("generation_tokens", "Number of generation tokens processed."),
}
"""Counter of EngineStats → metric and its sentence."""

REASONS = ("capacity", "deferred")
SLEEP_STATES = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
"""This engine never sleeps; a scraper that asks hears so."""

DEVICE = "device"
CACHE_SOURCES = (DEVICE, "host", "disk", "p2p", "external_unspecified")
"""vLLM's tiers."""

TIER_SOURCES = {"host": "host", "disk": "disk", "peer": "p2p"}
"""A tier's own name → vLLM's; what it has no name for is unspecified."""


class EngineMetrics:
    """Follows EngineStats; counters by their growth, so that they only ever rise."""

    def __init__(self, families: Families) -> None:
        self._running = families.gauge("num_requests_running", "Number of requests in model execution batches.")
        self._waiting = families.gauge("num_requests_waiting", "Number of requests waiting to be processed.")
        self._for_capacity, self._deferred = families.gauges(
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason: 'capacity', or 'deferred' until somebody else's blocks are there.",
            "reason",
            REASONS,
        )
        sentence = "Engine sleep state; awake = 1: the engine is awake. It never sleeps here."
        states = families.gauges("engine_sleep_state", sentence, "sleep_state", tuple(SLEEP_STATES))
        for gauge, value in zip(states, SLEEP_STATES.values(), strict=True):
            gauge.set(value)
        self._kv_usage = families.gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        self._counters = {field: families.counter(*row) for field, row in _COUNTERS.items()}
        self._by_source = families.counters(
            "prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self._by_tier = families.counters(
            "prompt_tokens_cached_by_source", "Prefix-cache hit tokens by cache tier.", "source", CACHE_SOURCES
        )
        self._before: EngineStats | None = None
        self._external_left = 0

    def watch(self, stats: EngineStats) -> None:
        """Take over the gauges, and the counters' growth since last time."""
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._for_capacity.set(stats.waiting - stats.deferred)
        self._deferred.set(stats.deferred)
        self._kv_usage.set(stats.kv_usage)
        growth = {field: getattr(stats, field) - getattr(self._before, field, 0) for field in _COUNTERS}
        for field, counter in self._counters.items():
            counter.inc(growth[field])
        self._split_prompt(growth)
        if not (stats.running or stats.waiting):
            self._external_left = 0  # who was aborted before its first token leaves none
        self._split_hits(stats, growth["prefix_hits"])
        self._before = stats

    def _split_prompt(self, growth: Mapping[str, int]) -> None:
        """Tokens of prompts by where their K/V came from.

        A tier's hits count at admission, a prompt when its first token comes: in between they are not local.
        """
        cached = growth["cached_prompt_tokens"]
        external = min(self._external_left + growth["external_hits"], cached)
        self._external_left += growth["external_hits"] - external
        self._by_source["local_compute"].inc(growth["prompt_tokens"] - cached)
        self._by_source["local_cache_hit"].inc(cached - external)
        self._by_source["external_kv_transfer"].inc(external)

    def _split_hits(self, stats: EngineStats, device_tokens: int) -> None:
        """Hit tokens by tier; they add up to prefix hits and external hits."""
        self._by_tier[DEVICE].inc(device_tokens)
        before = dict(self._before.external_hits_by_source) if self._before else {}
        for tier, tokens in stats.external_hits_by_source:
            source = TIER_SOURCES.get(tier, "external_unspecified")
            self._by_tier[source].inc(tokens - before.get(tier, 0))
