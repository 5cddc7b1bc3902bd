"""Options of the prefix cache: its size, its blocks, what stays in it."""

from __future__ import annotations

import argparse
from pathlib import Path

from backends.arguments.values import OnOff, fraction, positive, share
from backends.block_size import AUTO
from backends.eviction import EVICTION_POLICIES


def add_cache_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    _add_sizes(group)
    _add_policies(group)


def _add_sizes(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--block-size",
        type=_block_size,
        default=16,
        metavar="TOKENS",
        help=f"tokens in a block; {AUTO} chooses 8, 16, 32 or 64 by --request-profile and says why",
    )
    group.add_argument("--request-profile", type=Path, metavar="PATH", help=f"a recorded load, for --block-size {AUTO}")
    group.add_argument(
        "--record-request-profile",
        type=Path,
        metavar="PATH",
        help="write how long the first 20,000 prompts are and how much of each an earlier one had; no text",
    )
    group.add_argument("--enable-prefix-caching", action=OnOff, default=True, help="reuse blocks of equal prefixes")
    group.add_argument(
        "--gpu-memory-utilization",
        type=fraction,
        metavar="FRACTION",
        help="for weights and cache: of a GPU's memory (0.9 if not given), or of what this host has free (0.5)",
    )
    group.add_argument("--num-gpu-blocks-override", type=positive, metavar="BLOCKS", help="cache size in blocks")
    group.add_argument(
        "--prefix-caching-hash-algo",
        choices=["sha256", "sha256_cbor"],
        default="sha256",
        help="names of blocks: our own, or vLLM's byte for byte (from 0.31 on), four times slower",
    )


def _add_policies(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--eviction-policy",
        choices=list(EVICTION_POLICIES),
        default="lru",
        help="which cached block goes first; the others suit skewed or scanning loads (docs/worker.md)",
    )
    group.add_argument(
        "--cache-partition",
        action="append",
        metavar="NAME=FLOOR:CEILING",
        help="a share of the blocks for those whom the gateway names so, as in support=0.3:0.6; may be given several "
        "times. What the floor promises cannot be evicted by others; what is not used is lent",
    )
    group.add_argument(
        "--pin-quota",
        type=share,
        default=0.25,
        metavar="SHARE",
        help="of the blocks, and of each partition's, may be pinned; more is only kept longer",
    )
    group.add_argument(
        "--auto-retention",
        action=OnOff,
        default=False,
        help="pin for some minutes what is hit often, evict first what was seen once",
    )
    group.add_argument(
        "--share-in-flight",
        action=OnOff,
        default=True,
        help="a request whose next blocks another one is computing waits for them",
    )


def _block_size(text: str) -> int | str:
    return text if text == AUTO else positive(text)
