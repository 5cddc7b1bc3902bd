"""The metrics page beside the one recorded from vLLM 0.32: same names, types, labels and buckets."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.accounts import FinishedRequest
from backends.metrics import WorkerMetrics, token_buckets
from tests.backends.server_builders import FIXTURES
from tests.backends.test_log_line import build_stats

LEFT_OUT = {
    "vllm:estimated_flops_per_gpu": "nothing is estimated",
    "vllm:estimated_read_bytes_per_gpu": "nothing is estimated",
    "vllm:estimated_write_bytes_per_gpu": "nothing is estimated",
    "vllm:engine_sleep_state": "the engine never sleeps",
    "vllm:external_prefix_cache_queries": "there is no other cache",
    "vllm:external_prefix_cache_hits": "there is no other cache",
    "vllm:mm_cache_queries": "text only",
    "vllm:mm_cache_hits": "text only",
}
"""What vLLM has and this worker has no meaning for."""

CACHE_INFO = {"block_size": 32, "num_gpu_blocks": 1456, "enable_prefix_caching": True}


def build_metrics() -> WorkerMetrics:
    return WorkerMetrics("smollm2", 4096, CACHE_INFO)


def families(text: str) -> dict[str, tuple[str, dict[str, set[frozenset[str]]], set[str]]]:
    """Family → type, label names per sample name, histogram bounds; vLLM's own and no `_created`."""
    found = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("vllm:") and not family.name.endswith("_created"):
            labels: dict[str, set[frozenset[str]]] = {}
            for sample in family.samples:
                labels.setdefault(sample.name, set()).add(frozenset(sample.labels))
            bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
            found[family.name] = (family.type, labels, bounds)
    return found


def values(metrics: WorkerMetrics) -> dict[str, float]:
    """`name{label=value of all but model and engine}` → value."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            extra = [value for label, value in sorted(sample.labels.items()) if label not in ("model_name", "engine")]
            found[" ".join([sample.name.removeprefix("vllm:"), *extra])] = sample.value
    return found


def build_finished(**changes) -> FinishedRequest:
    fields = {"request_id": "a", "finish_reason": "stop", "prompt_tokens": 100, "cached_tokens": 64, "n": 1}
    fields |= {"completion_tokens": 11, "max_tokens": 50, "preemptions": 0, "queue_seconds": 0.1}
    fields |= {"prefill_seconds": 0.2, "decode_seconds": 1.0, "e2e_seconds": 1.3}
    return FinishedRequest(**{**fields, **changes})


def recorded_page() -> dict:
    return families((FIXTURES / "metrics_after.txt").read_text(encoding="utf-8"))


def test_every_metric_is_one_of_vllms_or_left_out_for_a_reason():
    """Worker-reference acceptance 2: the name set."""
    assert set(families(build_metrics().text().decode())) == set(recorded_page()) - set(LEFT_OUT)


@pytest.mark.parametrize("name", sorted(set(recorded_page()) - set(LEFT_OUT) - {"vllm:cache_config_info"}))
def test_a_metric_has_the_recorded_type_labels_and_buckets(name: str):
    """A scraper sees no difference."""
    assert families(build_metrics().text().decode())[name] == recorded_page()[name]


def test_cache_config_info_tells_the_blocks():
    """A subset of vLLM's labels, and its engine, without the model's name."""
    _, labels, _ = families(build_metrics().text().decode())["vllm:cache_config_info"]
    ((mine,),) = labels.values()
    ((theirs,),) = recorded_page()["vllm:cache_config_info"][1].values()
    assert mine == {"block_size", "num_gpu_blocks", "enable_prefix_caching", "engine"}
    assert mine <= theirs


def test_counters_follow_the_engines_numbers():
    """By their growth, so that they only ever rise."""
    metrics = build_metrics()
    metrics.watch(build_stats(prefix_queries=100, prefix_hits=60, prompt_tokens=90, cached_prompt_tokens=60))
    metrics.watch(
        build_stats(prefix_queries=150, prefix_hits=80, prompt_tokens=150, cached_prompt_tokens=80, preemptions=2)
    )
    seen = values(metrics)
    assert (seen["prefix_cache_queries_total"], seen["prefix_cache_hits_total"]) == (150, 80)
    assert (seen["prompt_tokens_total"], seen["prompt_tokens_cached_total"]) == (150, 80)
    assert seen["prompt_tokens_by_source_total local_compute"] == 70
    assert seen["prompt_tokens_by_source_total local_cache_hit"] == 80
    assert seen["prompt_tokens_cached_by_source_total device"] == 80
    assert seen["num_preemptions_total"] == 2


def test_gauges_show_the_moment():
    """Up and down."""
    metrics = build_metrics()
    for running in (3, 1):
        metrics.watch(build_stats(running=running, waiting=2, kv_usage=0.25))
    seen = values(metrics)
    assert (seen["num_requests_running"], seen["num_requests_waiting"], seen["kv_cache_usage_perc"]) == (1, 2, 0.25)
    assert seen["num_requests_waiting_by_reason capacity"] == 2


def test_a_finished_request_is_observed_once_everywhere():
    """Its shape and its phases."""
    metrics = build_metrics()
    metrics.finished(build_finished())
    seen = values(metrics)
    assert seen["request_success_total stop"] == 1
    assert seen["request_prompt_tokens_sum"] == 100
    assert seen["request_prefill_kv_computed_tokens_sum"] == 36
    assert seen["request_generation_tokens_sum"] == 11
    assert seen["e2e_request_latency_seconds_sum"] == 1.3
    assert seen["request_inference_time_seconds_sum"] == 1.2
    assert seen["request_time_per_output_token_seconds_sum"] == 0.1


def test_an_aborted_request_that_never_ran_does_not_lower_the_latencies():
    """Phases never reached are not zeros in a histogram."""
    metrics = build_metrics()
    metrics.finished(build_finished(finish_reason="abort", completion_tokens=0, prefill_seconds=0, decode_seconds=0))
    seen = values(metrics)
    assert seen["request_success_total abort"] == 1
    assert seen["request_prefill_time_seconds_count"] == 0
    assert seen["request_queue_time_seconds_count"] == 1


def test_token_times_and_steps_are_observed():
    """The engine's other three reports."""
    metrics = build_metrics()
    metrics.first_token("a", 0.5)
    metrics.next_token("a", 0.02)
    metrics.next_token("a", 0.03)
    metrics.stepped(512, 0)
    seen = values(metrics)
    assert (seen["time_to_first_token_seconds_sum"], seen["inter_token_latency_seconds_count"]) == (0.5, 2)
    assert seen["iteration_tokens_total_sum"] == 512


def test_two_workers_in_one_process_keep_their_numbers_apart():
    """A registry each."""
    one, other = build_metrics(), build_metrics()
    one.watch(build_stats(running=5))
    assert values(other)["num_requests_running"] == 0


def test_token_buckets_end_at_the_models_length():
    """1, 2, 5 and their tens, as vLLM."""
    assert token_buckets(4096) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    assert token_buckets(10) == (1, 2, 5, 10)
