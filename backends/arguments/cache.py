"""Options of the prefix cache: its size, its blocks, what stays in it."""

from __future__ import annotations

import argparse

from backends.arguments.values import OnOff, fraction, positive


def add_cache_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument("--block-size", type=positive, default=16, metavar="TOKENS")
    group.add_argument("--enable-prefix-caching", action=OnOff, default=True, help="reuse blocks of equal prefixes")
    group.add_argument(
        "--gpu-memory-utilization",
        type=fraction,
        default=0.5,
        metavar="FRACTION",
        help="of the memory this host has free, for weights and cache",
    )
    group.add_argument("--num-gpu-blocks-override", type=positive, metavar="BLOCKS", help="cache size in blocks")
    group.add_argument(
        "--prefix-caching-hash-algo",
        choices=["sha256", "sha256_cbor"],
        default="sha256",
        help="names of blocks: our own, or vLLM's byte for byte (from 0.31 on), four times slower",
    )
