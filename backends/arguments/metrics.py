"""Options of /metrics: what is told beside the names that vLLM always has."""

from __future__ import annotations

import argparse

from backends.arguments.values import share


def add_metrics_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument(
        "--kv-cache-metrics", action="store_true", help="how long blocks live and rest in the cache, from a sample"
    )
    group.add_argument(
        "--kv-cache-metrics-sample", type=share, default=0.01, metavar="SHARE", help="of the blocks are watched for it"
    )
    group.add_argument(
        "--show-legacy-metrics",
        action="store_true",
        help="also vllm:gpu_cache_usage_perc, vllm:gpu_prefix_cache_hit_rate and vllm:prefix_cache_hit_rate; the last "
        "is in no vLLM release",
    )
