"""What the command line asks for arrives where it is carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.arguments import parse_arguments
from backends.loading import StartError, load
from backends.log_line import Pulse
from backends.serving import Worker
from backends.wiring import build_worker
from tests.backends.server_builders import running_worker

PROMPT = list(range(1, 65))


def build(*arguments: str) -> Worker:
    options = parse_arguments(["--simulated", *arguments])
    return build_worker(options, load(options), Pulse())


def config_of(*arguments: str):
    return load(parse_arguments(["--simulated", *arguments])).config


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--scheduling-policy", "priority"], "scheduling_policy", "priority"),
        (["--long-prefill-token-threshold", "64"], "long_prefill_token_threshold", 64),
        (["--num-preallocate-tokens", "64"], "num_preallocate_tokens", 64),
        (["--watermark-blocks", "4"], "watermark_blocks", 4),
        (["--no-share-in-flight"], "share_in_flight", False),
        (["--eviction-policy", "lfu"], "eviction", "lfu"),
        (["--pin-quota", "0.1"], "pin_quota", 0.1),
        (["--auto-retention"], "auto_retention", True),
        (["--no-enable-prefix-caching"], "enable_prefix_caching", False),
        (["--block-size", "32"], "block_tokens", 32),
        (["--max-num-seqs", "7"], "max_sequences", 7),
        (["--max-num-batched-tokens", "300"], "max_batched_tokens", 300),
    ],
)
def test_a_size_or_switch_reaches_the_engine(arguments: list[str], name: str, value: object):
    """And differs from the default, else this test would say nothing."""
    assert getattr(config_of(*arguments), name) == value
    assert getattr(config_of(), name) != value


def test_partitions_reach_the_pool_and_the_requests():
    """A request may name those that there are, and no other."""
    worker = build("--cache-partition", "support=0.25:0.5")
    assert worker.settings.wire_limits.partitions == ("", "support")
    with pytest.raises(StartError, match="name=floor:ceiling"):
        build("--cache-partition", "support")
    with pytest.raises(StartError, match="more than the whole pool"):
        build("--cache-partition", "a=0.6:1", "--cache-partition", "b=0.6:1")


@pytest.mark.parametrize(("text", "bound"), [("5", 5), ("-1", None)])
def test_the_bound_on_logprobs_reaches_the_requests(text: str, bound: int | None):
    """-1 is none."""
    assert build("--max-logprobs", text).settings.wire_limits.max_logprobs == bound


def test_the_old_metrics_are_there_only_when_asked_for():
    """--show-legacy-metrics."""
    assert "vllm:prefix_cache_hit_rate" in build("--show-legacy-metrics").metrics.text().decode()
    assert "vllm:prefix_cache_hit_rate" not in build().metrics.text().decode()


def test_the_hash_is_told_in_the_cache_info():
    """--prefix-caching-hash-algo."""
    page = build("--prefix-caching-hash-algo", "sha256_cbor").metrics.text().decode()
    assert 'prefix_caching_hash_algo="sha256_cbor"' in page


async def test_blocks_are_watched_over_their_lives():
    """--kv-cache-metrics: a reuse is a gap, an eviction a life."""
    arguments = ("--kv-cache-metrics", "--kv-cache-metrics-sample", "1", "--num-gpu-blocks-override", "9")
    async with running_worker(*arguments, "--max-model-len", "128") as running:
        for first in (1, 1, 2, 3):
            await running.complete([first, *PROMPT], max_tokens=1)
        assert await running.metric("kv_block_reuse_gap_seconds_count") == 4
        assert await running.metric("kv_block_lifetime_seconds_count") >= 4
        assert await running.metric("kv_block_idle_before_evict_seconds_count") >= 4


async def test_evicted_blocks_come_back_from_host_memory():
    """--kv-offloading-size: external hits, told with their source."""
    arguments = ("--kv-offloading-size", "0.001", "--num-gpu-blocks-override", "9", "--max-model-len", "128")
    async with running_worker(*arguments) as running:
        for first in (1, 2, 3, 1):
            answer = await running.complete([first, *PROMPT], max_tokens=1)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 64
        assert await running.metric("external_prefix_cache_hits_total") == 64
        async with running.client.get("/metrics") as response:
            page = await response.text()
        assert 'prompt_tokens_cached_by_source_total{engine="0",model_name="smollm2",source="host"} 64.0' in page
        assert 'vllm:kv_offload_loads_total{engine="0",model_name="smollm2",tier="host"} 4.0' in page


def test_tiers_that_cannot_be_are_a_start_error(tmp_path: Path):
    """Not a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="--kv-disk"):
        build("--kv-disk", str(tmp_path / "file"))
    with pytest.raises(StartError, match="--enable-prefix-caching"):
        build("--kv-offloading-size", "1", "--no-enable-prefix-caching")


async def test_without_tiers_nothing_external_is_counted():
    """A query of nobody would look like a bad tier."""
    async with running_worker() as running:
        await running.complete(PROMPT, max_tokens=1)
        assert await running.metric("external_prefix_cache_queries_total") == 0


async def test_blocks_by_partition_are_on_the_page():
    """free + referenced is the usable pool."""
    async with running_worker("--cache-partition", "support=0.25:0.5", "--num-gpu-blocks-override", "2049") as running:
        await running.complete(PROMPT, max_tokens=1, vllm_xargs={"cache_partition": "support"})
        async with running.client.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        blocks = {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if "homing_worker_blocks{" in line}
        cached = 'homing_worker_blocks{model_name="smollm2",partition="support",state="cached"}'
        assert blocks[cached] == 4
        assert sum(value for name, value in blocks.items() if 'state="free"' in name or "referenced" in name) == 2048
