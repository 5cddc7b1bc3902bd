"""The metrics page beside the one recorded from vLLM 0.32: same names, types, labels and buckets."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.backends.metrics.page import build_metrics, families, recorded_page, values
from tests.backends.server_builders import FIXTURES
from tests.backends.test_log_line import build_stats

LEFT_OUT = {
    "vllm:estimated_flops_per_gpu": "nothing is estimated",
    "vllm:estimated_read_bytes_per_gpu": "nothing is estimated",
    "vllm:estimated_write_bytes_per_gpu": "nothing is estimated",
    "vllm:mm_cache_queries": "text only",
    "vllm:mm_cache_hits": "text only",
}
"""What vLLM has and this worker has no meaning for."""

LABEL_VALUES_LEFT_OUT = {
    ("vllm:request_success", "finished_reason", "repetition"): "no answer is ended for repeating itself",
}
"""Values of labels that never occur here."""

OTHER_PROGRAMS = {
    "http_requests": "the instrumentator of vLLM's web framework; the gateway counts requests and their times",
    "http_request_size_bytes": "the same",
    "http_response_size_bytes": "the same",
    "http_request_duration_highr_seconds": "the same",
    "http_request_duration_seconds": "the same",
}
"""What stands on vLLM's page without being vLLM's."""


def page() -> str:
    return build_metrics().text().decode()


def label_values(text: str) -> set[tuple[str, str, str]]:
    """Family, label and value, of labels that name a kind rather than a size."""
    return {
        (family.name, label, value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for label, value in sample.labels.items()
        if label in ("reason", "source", "finished_reason", "sleep_state") and not family.name.endswith("_created")
    }


def test_every_metric_is_one_of_vllms_or_left_out_for_a_reason():
    """Worker-reference acceptance 2: the name set; a row of the table that is no longer true fails too."""
    assert set(families(page())) == set(recorded_page()) - set(LEFT_OUT)
    assert set(LEFT_OUT) <= set(recorded_page())


def test_what_else_stands_on_vllms_page_is_known():
    """Python's and the process' own metrics are there; the web framework's are not, and why."""
    recorded = families((FIXTURES / "metrics_after.txt").read_text(encoding="utf-8"), prefix="")
    mine = families(page(), prefix="")
    others = {name for name in recorded if not name.startswith("vllm:")}
    assert others - set(mine) == set(OTHER_PROGRAMS)


@pytest.mark.parametrize("name", sorted(set(recorded_page()) - set(LEFT_OUT) - {"vllm:cache_config_info"}))
def test_a_metric_has_the_recorded_type_labels_and_buckets(name: str):
    """A scraper sees no difference."""
    assert families(page())[name] == recorded_page()[name]


def test_every_kind_that_a_label_may_name_is_there_from_the_start():
    """So that a rate over it is zero and not absent."""
    recorded = label_values((FIXTURES / "metrics_after.txt").read_text(encoding="utf-8"))
    assert label_values(page()) == recorded - set(LABEL_VALUES_LEFT_OUT)


def test_cache_config_info_tells_the_blocks():
    """A subset of vLLM's labels, and its engine, without the model's name."""
    _, labels, _ = families(page())["vllm:cache_config_info"]
    ((mine,),) = labels.values()
    ((theirs,),) = recorded_page()["vllm:cache_config_info"][1].values()
    assert mine == {"block_size", "num_gpu_blocks", "enable_prefix_caching", "engine"}
    assert mine <= theirs


def test_a_queue_limit_is_named():
    """vLLM's reasons."""
    metrics = build_metrics()
    metrics.rejected("max_num_queued_reqs")
    assert values(metrics.registry)["admission_rejections_total max_num_queued_reqs"] == 1
    assert values(metrics.registry)["admission_rejections_total max_num_queued_tokens"] == 0


def test_two_workers_in_one_process_keep_their_numbers_apart():
    """A registry each."""
    one, other = build_metrics(), build_metrics()
    one.watch(build_stats(running=5))
    assert values(other.registry)["num_requests_running"] == 0
