"""Cached blocks as things to list, send and receive: what others may ask of the engine's thread between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backends.hashing import BlockKey
from backends.partitions import UNNAMED
from backends.prefix_cache import PrefixCache
from backends.types import Runner


class Prompt(NamedTuple):
    """A prompt's full blocks by name, in order; the first `held_blocks` of them are cached.

    `first_missing` is what the first block that is not cached follows. `partition` pays for blocks that are added.
    """

    root: BlockKey
    keys: list[BlockKey]
    held_blocks: int
    partition: str = UNNAMED

    @property
    def first_missing(self) -> BlockKey:
        """The last cached block, or the root."""
        return self.keys[self.held_blocks - 1] if self.held_blocks else self.root


class Holdings:
    """All methods leave every invariant of the pool as it was. Engine thread only."""

    def __init__(self, cache: PrefixCache, runner: Runner) -> None:
        self.cache = cache
        self._runner = runner
        self._payload_bytes: int | None = None

    @property
    def payload_bytes(self) -> int:
        """The K/V of one block."""
        if self._payload_bytes is None:
            self._payload_bytes = len(self._runner.read_blocks([0])[0])
        return self._payload_bytes

    @property
    def kv_digest(self) -> str:
        """See `Runner.kv_digest`."""
        return self._runner.kv_digest

    def prompt(
        self,
        token_ids: Sequence[int],
        *,
        cache_salt: str | None,
        adapter: str | None = None,
        partition: str = UNNAMED,
    ) -> Prompt:
        """How much of a prompt is cached now. Nobody holds what was found, so it may be gone after the next step."""
        root, keys = self.cache.names(token_ids, adapter=adapter, cache_salt=cache_salt)
        return Prompt(root, keys, len(self.cache.held(keys, root)) if self.cache.enabled else 0, partition)

    def chain(self, digests: Sequence[bytes], after: bytes) -> list[BlockKey]:
        """The blocks that follow `after`, up to the first of `digests` that is cached; empty when none leads there."""
        for digest in digests:
            for key in self.cache.pool.cached.keys_of(digest):
                chain = self._up_to(key, after)
                if chain:
                    return chain
        return []

    def _up_to(self, key: BlockKey, after: bytes) -> list[BlockKey]:
        chain: list[BlockKey] = []
        while True:
            parent = key.parent
            if parent is None or self.cache.pool.find(key, parent) is None:
                return []
            chain.append(key)
            if parent.digest == after:
                return chain[::-1]
            key = parent

    def read(self, keys: Sequence[BlockKey]) -> list[bytes]:
        """The K/V of the longest beginning of `keys` that is still cached."""
        block_ids = []
        for key in keys:
            found = None if key.parent is None else self.cache.pool.find(key, key.parent)
            if found is None:
                break
            block_ids.append(found[0])
        return self._runner.read_blocks(block_ids) if block_ids else []

    def add(self, prompt: Prompt, first: int, payloads: Sequence[bytes | memoryview]) -> int:
        """Cache the blocks of a prompt from number `first` on, held by nobody; how many of them are cached now.

        Fewer than given when what comes before them is gone, or the pool has no room. What somebody else computed
        meanwhile is not stored twice. ValueError for a payload of the wrong size, and nothing is stored then.
        """
        pool = self.cache.pool
        keys = prompt.keys[: first + len(payloads)]
        before = self.cache.held(keys, prompt.root)
        prompt.keys[: len(keys)] = keys  # those found are the pool's own now
        if len(before) < first:
            return 0
        here, partition = len(before) - first, prompt.partition
        if pool.unheld(before, partition) > pool.available(partition):
            return here
        pool.touch(before, partition, hits=False)  # else they could be evicted for those that follow them
        try:
            count = min(len(payloads) - here, pool.available(partition))
            if count > 0:
                self._write(prompt, len(before), payloads[here : here + count])
        finally:
            pool.free_blocks(reversed(before))
        return here + max(count, 0)

    def _write(self, prompt: Prompt, first: int, payloads: Sequence[bytes | memoryview]) -> None:
        pool, keys = self.cache.pool, prompt.keys
        block_ids = pool.get_new_blocks(len(payloads), prompt.partition)
        try:
            self._runner.write_blocks(block_ids, payloads)
            parent = keys[first - 1] if first else prompt.root
            for index, block_id in enumerate(block_ids, start=first):
                parent = keys[index] = pool.cache_full_block(block_id, keys[index], parent)
        finally:
            pool.free_blocks(reversed(block_ids))
