"""Each answer's account in the histograms, once, and only the phases it reached."""

from __future__ import annotations

from backends.accounts import FinishedRequest
from backends.metrics.requests import RequestMetrics, token_buckets
from tests.backends.metrics.page import build_families, values


def build_finished(**changes) -> FinishedRequest:
    fields = {"request_id": "a", "finish_reason": "stop", "prompt_tokens": 100, "cached_tokens": 64, "n": 1}
    fields |= {"completion_tokens": 11, "max_tokens": 50, "preemptions": 0, "queue_seconds": 0.1}
    fields |= {"prefill_seconds": 0.2, "decode_seconds": 1.0, "e2e_seconds": 1.3}
    return FinishedRequest(**{**fields, **changes})


def test_a_finished_request_is_observed_once_everywhere():
    """Its shape and its phases."""
    declared = build_families()
    metrics = RequestMetrics(declared, 4096)
    metrics.finished(build_finished())
    seen = values(declared.registry)
    assert seen["request_success_total stop"] == 1
    assert seen["request_prompt_tokens_sum"] == 100
    assert seen["request_prefill_kv_computed_tokens_sum"] == 36
    assert seen["request_generation_tokens_sum"] == 11
    assert seen["e2e_request_latency_seconds_sum"] == 1.3
    assert seen["request_inference_time_seconds_sum"] == 1.2
    assert seen["request_time_per_output_token_seconds_sum"] == 0.1


def test_an_aborted_request_that_never_ran_does_not_lower_the_latencies():
    """Phases never reached are not zeros in a histogram."""
    declared = build_families()
    metrics = RequestMetrics(declared, 4096)
    metrics.finished(build_finished(finish_reason="abort", completion_tokens=0, prefill_seconds=0, decode_seconds=0))
    seen = values(declared.registry)
    assert seen["request_success_total abort"] == 1
    assert seen["request_prefill_time_seconds_count"] == 0
    assert seen["request_queue_time_seconds_count"] == 1


def test_what_is_asked_of_all_answers_counts_once():
    """n, and the longest answer, when the last one has ended; as in vLLM each answer has a finish reason of its own."""
    declared = build_families()
    metrics = RequestMetrics(declared, 4096)
    for choice, tokens in enumerate((5, 30)):
        metrics.finished(build_finished(request_id=f"a/{choice}", n=3, completion_tokens=tokens))
    assert values(declared.registry)["request_params_n_count"] == 0
    metrics.finished(build_finished(request_id="b"))
    metrics.finished(build_finished(request_id="a/2", n=3, completion_tokens=7, finish_reason="abort"))
    seen = values(declared.registry)
    assert (seen["request_params_n_count"], seen["request_params_n_sum"]) == (2, 4)
    assert seen["request_max_num_generation_tokens_sum"] == 11 + 30
    assert (seen["request_generation_tokens_sum"], seen["request_success_total stop"]) == (11 + 42, 3)


def test_token_times_and_steps_are_observed():
    """The engine's other three reports."""
    declared = build_families()
    metrics = RequestMetrics(declared, 4096)
    metrics.first_token("a", 0.5)
    metrics.next_token("a", 0.02)
    metrics.next_token("a", 0.03)
    metrics.stepped(512, 0)
    seen = values(declared.registry)
    assert (seen["time_to_first_token_seconds_sum"], seen["inter_token_latency_seconds_count"]) == (0.5, 2)
    assert seen["iteration_tokens_total_sum"] == 512


def test_token_buckets_end_at_the_models_length():
    """1, 2, 5 and their tens, as vLLM."""
    assert token_buckets(4096) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    assert token_buckets(10) == (1, 2, 5, 10)
