"""The tiers in /metrics: vLLM's names, a label for the tier, and the figures of the moment."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from backends.tiers.metrics import COUNTERS, TierCollector
from backends.tiers.tier import TierCounters, TierStats

HOST = TierStats("host", "CPU", 3, 300, 1000, TierCounters(queries=7, hits=5, stores=4, store_bytes=400, evicted=1))
DISK = TierStats(
    "disk", "STORAGE", 2, 250, 1000, TierCounters(skipped_stores=2, failed_stores=1, load_seconds=0.5, broken=6)
)
REDIS = TierStats("redis", "STORAGE", 0, 0, None, TierCounters(load_bytes=123))


def samples(*tiers: TierStats) -> dict[tuple[str, str], float]:
    registry = CollectorRegistry()
    registry.register(TierCollector("a-model", lambda: tiers))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            assert (sample.labels["model_name"], sample.labels["engine"]) == ("a-model", "0")
            found[sample.name.removeprefix("vllm:kv_offload_"), sample.labels.get("tier", "")] = sample.value
    return found


def test_counters_by_tier():
    """With `_total`, as all of vLLM's."""
    found = samples(HOST, DISK, REDIS)
    assert found["tiering_chunk_queries_total", "host"] == 7
    assert found["tiering_chunk_hits_total", "host"] == 5
    assert found["store_bytes_total", "host"] == 400
    assert found["evictions_total", "host"] == 1
    assert found["load_time_total", "disk"] == 0.5
    assert found["broken_blocks_total", "disk"] == 6
    assert found["load_bytes_total", "redis"] == 123


def test_skipped_stores_are_those_dropped_and_those_refused():
    """Either way the block is not there."""
    assert samples(DISK)["stores_skipped_total", "disk"] == 3


def test_usage_where_it_is_known():
    """Redis bounds itself and does not say."""
    found = samples(HOST, DISK, REDIS)
    assert found["usage_perc", "host"] == found["cpu_cache_usage_perc", ""] == 0.3
    assert found["usage_perc", "disk"] == 0.25
    assert found["blocks", "disk"] == 2
    assert ("usage_perc", "redis") not in found


def test_every_figure_of_a_tier_is_shown():
    """No counter that nobody can see."""
    plain = TierCounters(**{name: index for index, name in enumerate(TierCounters.__slots__, 1)})
    values = {count(plain) for _, _, count in COUNTERS}
    skipped = plain.skipped_stores + plain.failed_stores
    expected = {getattr(plain, name) for name in plain.__slots__ if name not in ("skipped_stores", "failed_stores")}
    assert values == expected | {skipped}


def test_names_and_sentences():
    """Prometheus' characters; each sentence ends."""
    for name, sentence, _ in COUNTERS:
        assert re.fullmatch("[a-z_]+", name)
        assert sentence.endswith(".")


def test_without_tiers_the_names_are_there_without_samples():
    """Registering asks for names before there are figures."""
    assert samples() == {}
