"""The tiers in /metrics: vLLM's names for offloading, with a label for the tier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from backends.tiers.tier import TierCounters, TierStats

LABELS = ("model_name", "engine", "tier")
ENGINE = "0"

_Count = Callable[[TierCounters], float]

COUNTERS: tuple[tuple[str, str, _Count], ...] = (
    ("load_bytes", "Bytes of K/V loaded from the tier.", lambda counters: counters.load_bytes),
    ("load_time", "Seconds spent loading from the tier, in its own thread.", lambda counters: counters.load_seconds),
    ("loads", "Blocks loaded from the tier.", lambda counters: counters.loads),
    ("load_failures", "Loads that the tier failed: errors of disk or network.", lambda counters: counters.failed_loads),
    ("broken_blocks", "Blocks found damaged or foreign, and dropped.", lambda counters: counters.broken),
    ("store_bytes", "Bytes of K/V stored to the tier.", lambda counters: counters.store_bytes),
    ("store_time", "Seconds spent storing to the tier, in its own thread.", lambda counters: counters.store_seconds),
    ("stores", "Blocks stored to the tier.", lambda counters: counters.stores),
    (
        "stores_skipped",
        "Blocks not stored: too many waited to be written, or the tier refused.",
        lambda counters: counters.skipped_stores + counters.failed_stores,
    ),
    ("evictions", "Blocks dropped because the tier was full.", lambda counters: counters.evicted),
    ("tiering_chunk_queries", "Blocks asked of the tier.", lambda counters: counters.queries),
    ("tiering_chunk_hits", "Blocks that the tier gave to requests.", lambda counters: counters.hits),
)
"""Name (without `vllm:kv_offload_` and `_total`), sentence, figure."""


class TierCollector(Collector):
    """Reads `stats` at each scrape; register it in the worker's registry."""

    def __init__(self, model_name: str, stats: Callable[[], Sequence[TierStats]]) -> None:
        self._model_name = model_name
        self._stats = stats

    def describe(self) -> Iterator[Metric]:
        """The same names, without asking the tiers."""
        return self._families(())

    def collect(self) -> Iterator[Metric]:
        """One sample of each metric per tier."""
        return self._families(self._stats())

    def _families(self, tiers: Sequence[TierStats]) -> Iterator[Metric]:
        for name, sentence, count in COUNTERS:
            family = CounterMetricFamily(f"vllm:kv_offload_{name}", sentence, labels=LABELS)
            for tier in tiers:
                family.add_metric((self._model_name, ENGINE, tier.name), count(tier.counters))
            yield family
        blocks = GaugeMetricFamily("vllm:kv_offload_blocks", "Blocks in the tier.", labels=LABELS)
        usage = GaugeMetricFamily(
            "vllm:kv_offload_usage_perc", "Share of the tier's size in use. 1 means 100 percent.", labels=LABELS
        )
        for tier in tiers:
            if tier.limit_bytes is not None:
                blocks.add_metric((self._model_name, ENGINE, tier.name), tier.blocks)
                usage.add_metric((self._model_name, ENGINE, tier.name), tier.usage)
        yield blocks
        yield usage
        yield self._host_usage(tiers)

    def _host_usage(self, tiers: Sequence[TierStats]) -> Metric:
        family = GaugeMetricFamily(
            "vllm:kv_offload_cpu_cache_usage_perc", "Usage of the host tier. 1 means 100 percent.", labels=LABELS[:2]
        )
        for tier in tiers:
            if tier.name == "host":
                family.add_metric((self._model_name, ENGINE), tier.usage)
        return family
