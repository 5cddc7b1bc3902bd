"""Chains of blocks, payloads that follow from the block's name, and tiers of a few blocks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from backends.hashing import BlockHasher, BlockKey, pack
from backends.tiers.disk import DiskTier
from backends.tiers.disk_files import BlockFiles
from backends.tiers.entry import EntryFormat, Named, named
from backends.tiers.offload import TieredOffload, WritePolicy
from backends.tiers.tier import KvTier, TierNews
from tests.backends.core_builders import ManualClock

BLOCK_TOKENS = 4
PAYLOAD_BYTES = 200
DIGEST = "0123456789ab"


def build_keys(count: int, seed: int = 0, salt: str | None = None, hasher: BlockHasher | None = None) -> list[BlockKey]:
    """A chain of random tokens; equal seeds and salts give equal chains of new objects."""
    hasher = hasher or BlockHasher(BLOCK_TOKENS)
    generator, keys = random.Random(seed), []
    tokens = [generator.randrange(1000) for _ in range(count * BLOCK_TOKENS)]
    hasher.extend(keys, hasher.root(cache_salt=salt), pack(tokens))
    return keys


def build_chain(count: int, seed: int = 0, salt: str | None = None) -> list[Named]:
    return named(build_keys(count, seed, salt))


def payload_of(block: Named, size_bytes: int = PAYLOAD_BYTES) -> bytes:
    """What stands for the block's K/V: nobody else's."""
    return (sha256(block.name).digest() * (size_bytes // 32 + 1))[:size_bytes]


def payloads_of(blocks: Sequence[Named]) -> list[bytes]:
    return [payload_of(block) for block in blocks]


def build_entries(digest: str = DIGEST, payload_bytes: int = PAYLOAD_BYTES) -> EntryFormat:
    return EntryFormat(digest, BLOCK_TOKENS * 4, payload_bytes)


def build_disk(folder: Path, blocks: int = 100, digest: str = DIGEST, clock: Callable[[], float] | None = None):
    """An opened disk tier for so many blocks, with `news` and `files` to look at."""
    entries, news = build_entries(digest), TierNews()
    files = BlockFiles(folder, "model", DIGEST)
    disk = DiskTier(files, entries, blocks * entries.entry_bytes, news, clock or ManualClock())
    disk.open()
    disk.news, disk.files = news, files
    return disk


def loaded(tier, blocks: Sequence[Named]) -> list[bytes]:
    return [bytes(payload) for payload in tier.load(blocks)]


def store_all(tier, blocks: Sequence[Named]) -> None:
    for block in blocks:
        tier.store(block, payload_of(block))


class TierNotes:
    """A TierJournal that writes everything down, and what must be there according to it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bytes, str]] = []
        self.kept: dict[str, set[bytes]] = {}

    def stored(self, key: BlockKey, medium: str) -> None:
        self.told.append(("stored", key.digest, medium))
        assert key.digest not in self.kept.setdefault(medium, set()), "stored twice"
        self.kept[medium].add(key.digest)

    def removed(self, key: BlockKey, medium: str) -> None:
        self.told.append(("removed", key.digest, medium))
        self.kept[medium].remove(key.digest)

    def cleared(self, medium: str) -> None:
        self.told.append(("cleared", b"", medium))
        self.kept[medium] = set()


class BlockMemory:
    """A runner's K/V memory and nothing else."""

    kv_digest = DIGEST

    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {0: bytes(PAYLOAD_BYTES)}
        self.reads = 0

    def read_blocks(self, block_ids: Sequence[int]) -> list[bytes]:
        self.reads += len(block_ids)
        return [self.blocks[block_id] for block_id in block_ids]

    def hold(self, blocks: Sequence[Named]) -> None:
        """Put each block's payload into block 1, 2, …"""
        for block_id, block in enumerate(blocks, 1):
            self.blocks[block_id] = payload_of(block)


def build_offload(host=None, tiers: Sequence[KvTier] = (), policy: str = "write-back", **settings) -> TieredOffload:
    """Started, over a BlockMemory of its own as `memory`."""
    memory, news = BlockMemory(), settings.pop("news", None) or TierNews()
    offload = TieredOffload(
        settings.pop("runner", memory),
        host=host,
        open_slow=lambda entries: tiers,
        policy=WritePolicy(policy),
        block_tokens=BLOCK_TOKENS,
        clock=settings.pop("clock", time.monotonic),
        news=news,
        **settings,
    )
    offload.start()
    offload.memory = memory
    return offload


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Until it holds; AssertionError when it never does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)
