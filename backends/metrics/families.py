"""How the worker's metrics are declared: vLLM's prefix and labels, in one registry."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LABELS = ("model_name", "engine")
ENGINE = "0"
"""One engine per worker; vLLM numbers its data-parallel ranks."""


class Families:
    """Declares metrics of one model in `registry`; names are given without vLLM's prefix and `_total`."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        self.registry = registry
        self.model_name = model_name

    def gauge(self, name: str, sentence: str) -> Gauge:
        """A gauge of the engine."""
        return Gauge(f"vllm:{name}", sentence, LABELS, registry=self.registry).labels(self.model_name, ENGINE)

    def gauges(self, name: str, sentence: str, label: str, values: Sequence[str]) -> list[Gauge]:
        """One gauge for each value of a label."""
        family = Gauge(f"vllm:{name}", sentence, (*LABELS, label), registry=self.registry)
        return [family.labels(self.model_name, ENGINE, value) for value in values]

    def counter(self, name: str, sentence: str) -> Counter:
        """A counter of the engine."""
        return Counter(f"vllm:{name}", sentence, LABELS, registry=self.registry).labels(self.model_name, ENGINE)

    def counters(self, name: str, sentence: str, label: str, values: Sequence[str]) -> dict[str, Counter]:
        """One counter for each value of a label."""
        family = Counter(f"vllm:{name}", sentence, (*LABELS, label), registry=self.registry)
        return {value: family.labels(self.model_name, ENGINE, value) for value in values}

    def histogram(self, name: str, sentence: str, buckets: Sequence[float]) -> Histogram:
        """A histogram of the engine."""
        family = Histogram(f"vllm:{name}", sentence, LABELS, buckets=buckets, registry=self.registry)
        return family.labels(self.model_name, ENGINE)
