"""What a worker's /metrics page says: recorded pages of real engines, and composed ones of versions gone by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.worker_metrics import WorkerFigures, hit_ratio, parse_figures, restarted
from tests.gateway.builders import FIXTURES

VLLM_BEFORE = FIXTURES / "vllm-0.32" / "metrics_before.txt"
VLLM_AFTER = FIXTURES / "vllm-0.32" / "metrics_after.txt"
LLAMA_BEFORE = FIXTURES / "llama.cpp" / "metrics_before.txt"
LLAMA_AFTER = FIXTURES / "llama.cpp" / "metrics_after.txt"

VLLM_V0 = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:num_requests_swapped{model_name="m"} 0.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:cpu_cache_usage_perc{model_name="m"} 0.0
vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.6
vllm:prompt_tokens_total{model_name="m"} 1000.0
"""

VLLM_V0_CACHE_OFF = (
    'vllm:gpu_prefix_cache_hit_rate{model_name="m"} -1.0\nvllm:num_requests_running{model_name="m"} 1.0\n'
)

VLLM_085 = """
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 30.0
"""

VLLM_010_BOTH = """
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.1
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4
vllm:gpu_prefix_cache_queries_total{engine="0",model_name="m"} 10.0
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="m"} 1.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 160.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 64.0
"""

SGLANG = """
sglang:num_running_reqs{model_name="m",tp_rank="0"} 4.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 1.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.75
sglang:cache_hit_rate{model_name="m",tp_rank="0"} 0.5
sglang:prompt_tokens_total{model_name="m",tp_rank="0"} 200.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 40.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 10.0
sglang:generation_tokens_total{model_name="m"} 20.0
sglang:max_total_num_tokens{model_name="m"} 65536.0
"""


def read(path):
    return parse_figures(path.read_text())


def test_vllm_032_says_everything():
    """The recorded page of a real vLLM, read with all its figures."""
    figures = read(VLLM_AFTER)
    assert figures == WorkerFigures(
        running=0.0,
        waiting=0.0,
        kv_cache_usage_ratio=0.0,
        cache_queries=3228.0,
        cache_hits=1536.0,
        prompt_tokens=3228.0,
        generated_tokens=56.0,
        start_seconds=1.79596623653e09,
        block_tokens=32,
        cache_blocks=1456,
        prefix_caching=True,
    )
    assert figures.cache_size_tokens == 46592


def test_the_recorded_exchange_hit_by_its_own_counters():
    """Between the two recorded pages, hits over queries."""
    assert hit_ratio(read(VLLM_BEFORE), read(VLLM_AFTER)) == pytest.approx(1536 / 3228)


def test_llama_cpp_counts_found_and_computed_tokens_apart():
    """Its prompt tokens exclude the cached ones, so queries are the sum."""
    figures = read(LLAMA_AFTER)
    assert (figures.cache_hits, figures.cache_queries) == (2388.0, 3276.0)
    assert (figures.running, figures.waiting, figures.prompt_tokens) == (0.0, 0.0, 888.0)
    assert figures.cache_size_tokens is None
    before = read(LLAMA_BEFORE)
    asked = figures.cache_queries - before.cache_queries
    assert hit_ratio(before, figures) == pytest.approx((2388 - before.cache_hits) / asked)


def test_vllm_v0_speaks_by_gauges():
    """E-01, old gauge only: usage and hit ratio are found all the same."""
    figures = parse_figures(VLLM_V0)
    assert (figures.running, figures.waiting, figures.kv_cache_usage_ratio) == (3.0, 2.0, 0.25)
    assert hit_ratio(WorkerFigures(), figures) == 0.6


def test_minus_one_means_the_cache_is_off():
    """V0's −1 is no ratio."""
    figures = parse_figures(VLLM_V0_CACHE_OFF)
    assert figures.hit_rate_gauge is None
    assert figures.prefix_caching is False
    assert hit_ratio(WorkerFigures(), figures) is None


def test_vllm_085_counted_in_blocks():
    """E-02: 30 of 100 is 0.30, whatever the unit."""
    assert hit_ratio(WorkerFigures(cache_queries=0.0, cache_hits=0.0), parse_figures(VLLM_085)) == pytest.approx(0.30)


def test_where_old_and_new_names_stand_together_the_new_one_counts():
    """E-01, both kinds: 0.9 and 0.10 exposed two series of the same thing."""
    figures = parse_figures(VLLM_010_BOTH)
    assert (figures.kv_cache_usage_ratio, figures.cache_queries, figures.cache_hits) == (0.4, 160.0, 64.0)


def test_sglang_by_its_own_names():
    """Hits of every cache tier together, size in tokens."""
    figures = parse_figures(SGLANG)
    assert (figures.running, figures.waiting, figures.kv_cache_usage_ratio) == (4.0, 1.0, 0.75)
    assert (figures.cache_hits, figures.cache_queries) == (50.0, 200.0)
    assert figures.cache_size_tokens == 65536


def test_nothing_known_is_none_everywhere():
    """E-01, unknown: nothing is made up, nothing fails."""
    assert parse_figures("# HELP x y\nother_metric 3\n") == WorkerFigures()
    assert parse_figures("") == WorkerFigures()


@pytest.mark.parametrize(
    "line",
    [
        "vllm:num_requests_running",
        "vllm:num_requests_running{",
        'vllm:num_requests_running{model_name="m"}',
        'vllm:num_requests_running{model_name="m"} many',
        'vllm:num_requests_running{model_name="m"} NaN',
        'vllm:num_requests_running{model_name="m"} +Inf',
        "\x00\x01\x02",
    ],
)
def test_a_line_that_cannot_be_read_is_passed_over(line):
    """One broken line costs its own figure, not the page."""
    figures = parse_figures(line + "\nvllm:num_requests_waiting 2\n")
    assert (figures.running, figures.waiting) == (None, 2.0)


@given(st.text(max_size=300))
def test_no_page_makes_the_parser_fail(text):
    """Whatever answers on that port, alone or in the middle of a real page."""
    assert isinstance(parse_figures(text), WorkerFigures)
    assert isinstance(parse_figures(f"{VLLM_V0}vllm:num_requests_running{{{text}\n{SGLANG}"), WorkerFigures)


@given(st.lists(st.floats(min_value=0, max_value=1e12), min_size=4, max_size=4))
def test_a_hit_ratio_is_a_share_or_nothing(numbers):
    """E-02: never NaN, never below 0 or above 1, whatever two counters say that are not read at one moment."""
    queries, more, hits, found = numbers
    before = WorkerFigures(cache_queries=queries, cache_hits=hits)
    after = WorkerFigures(cache_queries=queries + more, cache_hits=hits + found)
    ratio = hit_ratio(before, after)
    assert ratio is None or 0.0 <= ratio <= 1.0


def test_label_values_may_hold_anything():
    """Spaces, braces and escaped quotes in a label do not shift the value."""
    line = 'vllm:num_requests_running{model_name="a } \\" 9 {b",engine="0"} 5 1700000000000\n'
    assert parse_figures(line).running == 5.0


def test_engines_of_one_worker_add_up():
    """Data-parallel ranks: counts add, a share is averaged, pools add."""
    text = "\n".join(
        f'vllm:num_requests_running{{engine="{rank}"}} {running}\n'
        f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {usage}\n'
        f'vllm:cache_config_info{{block_size="16",engine="{rank}",num_gpu_blocks="100"}} 1.0'
        for rank, running, usage in ((0, 2, 0.2), (1, 3, 0.6))
    )
    figures = parse_figures(text)
    assert (figures.running, figures.kv_cache_usage_ratio, figures.cache_blocks) == (5.0, pytest.approx(0.4), 200)


def test_a_pool_that_is_not_sized_yet_is_unknown():
    """vLLM writes `None` where it does not know."""
    figures = parse_figures('vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0')
    assert (figures.block_tokens, figures.cache_blocks, figures.cache_size_tokens) == (16, None, None)


def test_a_sleeping_engine_is_noticed():
    """vLLM's sleep mode: `awake` 0."""
    awake = 'vllm:engine_sleep_state{sleep_state="awake"} 1.0\nvllm:engine_sleep_state{sleep_state="discard_all"} 0.0\n'
    assert not parse_figures(awake).asleep
    assert parse_figures(awake.replace("1.0", "0.0")).asleep


def test_no_prompts_is_no_ratio():
    """E-02: 0/0 is nothing, not NaN and not 0."""
    figures = parse_figures(VLLM_085)
    assert hit_ratio(figures, figures) is None


def test_another_start_time_is_another_process():
    """Start times decide where they are given, whatever the counters do."""
    first, second = (
        WorkerFigures(start_seconds=1.0, prompt_tokens=5.0),
        WorkerFigures(start_seconds=2.0, prompt_tokens=9.0),
    )
    assert restarted(first, second)
    assert not restarted(first, WorkerFigures(start_seconds=1.0, prompt_tokens=1.0))


def test_without_start_times_a_counter_that_falls_tells():
    """llama.cpp gives no start time."""
    assert restarted(WorkerFigures(prompt_tokens=5.0), WorkerFigures(prompt_tokens=0.0))
    assert not restarted(WorkerFigures(prompt_tokens=5.0), WorkerFigures(prompt_tokens=5.0))
    assert not restarted(WorkerFigures(), WorkerFigures(prompt_tokens=5.0))


def test_no_ratio_across_a_restart():
    """Counters of two processes have no difference."""
    before = WorkerFigures(cache_queries=100.0, cache_hits=50.0)
    assert hit_ratio(before, WorkerFigures(cache_queries=10.0, cache_hits=5.0)) is None
