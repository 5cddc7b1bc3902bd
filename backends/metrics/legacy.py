"""Names of the cache that dashboards still ask for: vLLM's before 0.12, and one that no vLLM ever had."""

from __future__ import annotations

from backends.accounts import EngineStats
from backends.metrics.families import Families

OFF = -1.0
"""What vLLM 0.6 to 0.8 said of a hit rate without a prefix cache."""


class LegacyMetrics:
    """Follows EngineStats under the old names; `caching` says whether there is a prefix cache."""

    def __init__(self, families: Families, *, caching: bool) -> None:
        self._caching = caching
        self._usage = families.gauge(
            "gpu_cache_usage_perc", "KV-cache usage; vLLM up to 0.11, vllm:kv_cache_usage_perc since."
        )
        rate = "Share of looked-up tokens that were found, over the last 1,000 requests; -1 without a prefix cache."
        self._rates = (
            families.gauge("gpu_prefix_cache_hit_rate", f"{rate} vLLM's V0 engine up to 0.8 had this gauge."),
            families.gauge("prefix_cache_hit_rate", f"{rate} This name is in no vLLM release; people use it."),
        )

    def watch(self, stats: EngineStats) -> None:
        """Take over the gauges."""
        self._usage.set(stats.kv_usage)
        for gauge in self._rates:
            gauge.set(stats.recent_hit_rate if self._caching else OFF)
