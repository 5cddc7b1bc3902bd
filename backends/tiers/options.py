"""The tiers' options, and the tiers that they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from redis import Redis

from backends.tiers.disk import DiskTier
from backends.tiers.disk_files import BlockFiles
from backends.tiers.entry import EntryFormat
from backends.tiers.host import HostTier
from backends.tiers.offload import TieredOffload, WritePolicy
from backends.tiers.rates import Rates
from backends.tiers.redis import RedisTier
from backends.tiers.tier import KvTier, TierJournal, TierNews
from backends.types import Runner

GIB = 1 << 30


def add_tier_options(group: argparse._ArgumentGroup) -> None:
    """Add them to their group."""
    group.add_argument(
        "--kv-offloading-size", type=_gib, metavar="GIB", help="host memory for blocks that the cache gives up"
    )
    group.add_argument("--kv-disk", type=Path, metavar="PATH", help="a folder for them, which outlives the worker")
    group.add_argument("--kv-disk-size", type=_gib, default=16.0, metavar="GIB", help="most that the folder may hold")
    group.add_argument(
        "--kv-redis-url", type=_redis_url, metavar="URL", help="a Redis for them, shared between workers"
    )
    group.add_argument("--kv-redis-ttl", type=_seconds, default=3600, metavar="SECONDS", help="since their last use")
    group.add_argument(
        "--kv-write-policy",
        choices=[policy.value for policy in WritePolicy],
        default=WritePolicy.WRITE_BACK.value,
        help="copy blocks when they are computed, when the cache gives them up, or then if they were hit twice",
    )


def build_offload(
    options: argparse.Namespace,
    runner: Runner,
    *,
    model: str,
    block_tokens: int,
    clock: Callable[[], float],
    journal: TierJournal | None = None,
    rates: Rates | None = None,
) -> TieredOffload | None:
    """The tiers asked for, None when there are none; not opened yet, for that takes a runner with memory.

    ValueError for options that contradict each other. `model` is for people who look at the folder. `rates` is given
    where somebody else measures by the same steps.
    """
    size_gib, folder, url = options.kv_offloading_size, options.kv_disk, options.kv_redis_url
    if size_gib is None and folder is None and url is None:
        return None
    if not options.enable_prefix_caching:
        raise ValueError("--kv-offloading-size, --kv-disk and --kv-redis-url need --enable-prefix-caching")
    news = TierNews()

    def open_slow(entries: EntryFormat) -> Sequence[KvTier]:
        tiers: list[KvTier] = []
        if folder is not None:
            files = BlockFiles(folder, model, entries.config_digest)
            tiers.append(_open_disk(DiskTier(files, entries, int(options.kv_disk_size * GIB), news, clock), folder))
        if url is not None:
            prefix = f"homing:kv:{entries.config_digest}:"
            tiers.append(RedisTier(url, entries, prefix=prefix, ttl_seconds=options.kv_redis_ttl, clock=clock))
        return tiers

    return TieredOffload(
        runner,
        host=None if size_gib is None else HostTier(int(size_gib * GIB), news),
        open_slow=open_slow,
        policy=WritePolicy(options.kv_write_policy),
        block_tokens=block_tokens,
        clock=clock,
        news=news,
        journal=journal,
        rates=rates,
    )


def _open_disk(disk: DiskTier, folder: Path) -> DiskTier:
    try:
        disk.open()
    except OSError as error:
        raise ValueError(f"--kv-disk {folder}: {error.strerror}; give a folder that can be written to") from error
    return disk


def _gib(text: str) -> float:
    with suppress(ValueError):
        if 0 < (size := float(text)) < inf:
            return size
    raise argparse.ArgumentTypeError(f"{text!r} is not a size in GiB above 0")


def _seconds(text: str) -> int:
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of seconds above 0")


def _redis_url(text: str) -> str:
    """The URL itself never enters a message: it may hold a password."""
    try:
        Redis.from_url(text).close()
    except ValueError:
        raise argparse.ArgumentTypeError("not a URL like redis://host:6379/0, rediss://… or unix://…") from None
    return text
