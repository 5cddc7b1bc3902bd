"""The worker's /metrics: vLLM's names (≥ 0.12), types, labels and buckets, as far as they have a meaning here."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    PROCESS_COLLECTOR,
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
)

from backends.accounts import EngineStats
from backends.metrics.engine import EngineMetrics
from backends.metrics.families import ENGINE, Families
from backends.metrics.legacy import LegacyMetrics
from backends.metrics.partitions import PartitionMetrics
from backends.metrics.requests import RequestMetrics

REJECTED_REQUESTS = "max_num_queued_reqs"
REJECTED_TOKENS = "max_num_queued_tokens"


class WorkerMetrics:
    """All metrics of one worker, in a registry of its own; thread-safe. `requests` is the engine's Observer.

    `cache_info` becomes the labels of `vllm:cache_config_info`. `legacy` adds names that newer vLLMs have no more.
    """

    def __init__(
        self, model_name: str, max_model_tokens: int, cache_info: Mapping[str, object], *, legacy: bool = False
    ) -> None:
        self.registry = CollectorRegistry()
        for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR):
            self.registry.register(collector)
        self.families = Families(self.registry, model_name)
        self.requests = RequestMetrics(self.families, max_model_tokens)
        self._watchers = [EngineMetrics(self.families).watch, PartitionMetrics(self.families).watch]
        if legacy:
            caching = bool(cache_info.get("enable_prefix_caching", True))
            self._watchers.append(LegacyMetrics(self.families, caching=caching).watch)
        self._rejections = Counter(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            ("model_name", "reason"),
            registry=self.registry,
        )
        for reason in (REJECTED_REQUESTS, REJECTED_TOKENS):
            self._rejections.labels(model_name, reason)
        self._declare_cache_info(cache_info)

    def text(self) -> bytes:
        """The exposition, in Prometheus' text format 0.0.4."""
        return bytes(generate_latest(self.registry))

    def watch(self, stats: EngineStats) -> None:
        """Take over the engine's gauges, and its counters' growth since last time."""
        for watch in self._watchers:
            watch(stats)

    def rejected(self, reason: str) -> None:
        """A queue limit turned a request away."""
        self._rejections.labels(self.families.model_name, reason).inc()

    def _declare_cache_info(self, cache_info: Mapping[str, object]) -> None:
        info = Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            (*cache_info, "engine"),
            registry=self.registry,
        )
        info.labels(*map(str, cache_info.values()), ENGINE).set(1)
