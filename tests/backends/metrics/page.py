"""Reading a metrics page, the worker's or the recorded one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from backends.metrics import WorkerMetrics
from backends.metrics.families import Families
from tests.backends.server_builders import FIXTURES

CACHE_INFO = {"block_size": 32, "num_gpu_blocks": 1456, "enable_prefix_caching": True}


def build_metrics(**options) -> WorkerMetrics:
    return WorkerMetrics("smollm2", 4096, CACHE_INFO, **options)


def build_families() -> Families:
    return Families(CollectorRegistry(), "smollm2")


def families(text: str, prefix: str = "vllm:") -> dict[str, tuple[str, dict[str, set[frozenset[str]]], set[str]]]:
    """Family → type, label names per sample name, histogram bounds; no `_created`."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith(prefix) and not family.name.endswith("_created"):
            labels: dict[str, set[frozenset[str]]] = {}
            for sample in family.samples:
                labels.setdefault(sample.name, set()).add(frozenset(sample.labels))
            bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
            found[family.name] = (family.type, labels, bounds)
    return found


def values(registry: CollectorRegistry) -> dict[str, float]:
    """`name value-of-each-label-but-model-and-engine` → value; names without vLLM's prefix."""
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            extra = [value for label, value in sorted(sample.labels.items()) if label not in ("model_name", "engine")]
            found[" ".join([sample.name.removeprefix("vllm:"), *extra])] = sample.value
    return found


def recorded_page() -> dict:
    return families((FIXTURES / "metrics_after.txt").read_text(encoding="utf-8"))
