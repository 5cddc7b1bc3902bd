"""The old names, for those who ask for them."""

from __future__ import annotations

from tests.backends.metrics.page import build_metrics, values
from tests.backends.test_log_line import build_stats

OLD = ("gpu_cache_usage_perc", "gpu_prefix_cache_hit_rate", "prefix_cache_hit_rate")


def test_the_old_names_say_what_the_new_ones_say():
    """Usage now, hit rate over the last requests."""
    metrics = build_metrics(legacy=True)
    metrics.watch(build_stats(kv_usage=0.25, recent_hit_rate=0.75))
    seen = values(metrics.registry)
    assert [seen[name] for name in OLD] == [0.25, 0.75, 0.75]
    assert seen["kv_cache_usage_perc"] == 0.25


def test_a_hit_rate_without_a_cache_is_minus_one():
    """As vLLM's V0 engine said it."""
    from backends.metrics import WorkerMetrics

    metrics = WorkerMetrics("smollm2", 4096, {"enable_prefix_caching": False}, legacy=True)
    metrics.watch(build_stats())
    assert values(metrics.registry)["gpu_prefix_cache_hit_rate"] == -1


def test_nobody_gets_them_unasked():
    """They are in no current vLLM."""
    seen = values(build_metrics().registry)
    assert not set(OLD) & set(seen)


def test_the_page_says_which_name_no_vllm_ever_had():
    """Whoever reads the help text knows what he is looking at."""
    help_lines = [line for line in build_metrics(legacy=True).text().decode().splitlines() if "no vLLM release" in line]
    assert [line.split()[2] for line in help_lines] == ["vllm:prefix_cache_hit_rate"]
