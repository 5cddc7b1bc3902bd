"""What is cached of a sequence's prefix: look-up, allocation in three stages, registering after the step."""

from __future__ import annotations

from collections.abc import Iterable

from backends.block_pool import BlockPool
from backends.hashing import BlockHasher, BlockKey, pack, same_chain
from backends.prefix_statistics import PrefixStatistics
from backends.request_profile import RequestRecorder
from backends.retention import Retention
from backends.sequence import Sequence

LASTING = (Retention.PIN, Retention.PRIORITY)


class PrefixCache:
    """Gives sequences their blocks, and lets them share the full blocks of equal beginnings.

    A block is findable only after the step that computed it, so nobody reads what is not written yet. A growing
    sequence takes blocks for up to `ahead_tokens` more than it needs, while more than `spare_blocks` stay free. What
    is admitted for the first time is told to `profile`, where there is one.
    """

    def __init__(
        self,
        pool: BlockPool,
        hasher: BlockHasher,
        *,
        enabled: bool = True,
        ahead_tokens: int = 0,
        spare_blocks: int = 0,
    ) -> None:
        self.pool = pool
        self.hasher = hasher
        self.statistics = PrefixStatistics()
        self.enabled = enabled
        self._block_tokens = hasher.block_tokens
        self._ahead_tokens = ahead_tokens
        self._spare_blocks = spare_blocks
        self._now = 0.0
        self.profile: RequestRecorder | None = None

    def tick(self, now: float) -> None:
        """A step begins: `now` is what retention counts from until the next one."""
        self._now = now
        self.pool.expire(now)

    def lookup(self, sequence: Sequence) -> list[int]:
        """The cached blocks of the sequence's beginning, unheld: take them at once or not at all.

        At most `len(token_ids) - 1` tokens hit: the last one is always computed, for its logits. The sequence's
        blocks are named even if it reads nothing.
        """
        if not self.enabled:
            return []
        root = self._name_blocks(sequence)
        if not sequence.reads_cache:
            return []
        return self._find(sequence.block_keys, root, self.findable_blocks(sequence))

    def findable_blocks(self, sequence: Sequence) -> int:
        """The most blocks that a look-up could hit."""
        return (len(sequence.token_ids) - 1) // self._block_tokens

    def held(self, keys: list[BlockKey], root: BlockKey) -> list[int]:
        """The cached blocks of the longest beginning of `keys`, the names of a prompt's full blocks after `root`."""
        return self._find(keys, root, len(keys))

    def names(
        self, token_ids: Iterable[int], *, adapter: str | None = None, cache_salt: str | None = None
    ) -> tuple[BlockKey, list[BlockKey]]:
        """The root and the names of the full blocks of a prompt, as a request with this adapter and salt has them."""
        root = self.hasher.root(adapter=adapter, cache_salt=cache_salt)
        keys: list[BlockKey] = []
        self.hasher.extend(keys, root, pack(token_ids))
        return root, keys

    def _find(self, keys: list[BlockKey], parent: BlockKey, most: int) -> list[int]:
        """Look block after block up, until one is missing; the keys found become the pool's own."""
        hits, find = [], self.pool.find
        for index in range(most):
            found = find(keys[index], parent)
            if found is None:
                break
            block_id, parent = found
            keys[index] = parent
            hits.append(block_id)
        return hits

    def admit(self, sequence: Sequence, hits: list[int], end_token: int, *, spare_blocks: int) -> bool:
        """Hold `hits` and take new blocks up to `end_token`; False, and nothing done, when that does not fit.

        It fits when the *whole* sequence would fit beside `spare_blocks`, else several long prompts could be let in
        at once and none of them ever finish. Hits that nobody holds are free blocks that get used up.
        """
        pool, partition = self.pool, sequence.partition
        whole = self._blocks_for(len(sequence.token_ids)) - len(hits) + pool.unheld(hits, partition)
        if whole + spare_blocks > pool.available(partition):
            return False
        pool.touch(hits, partition, hits=sequence.asks_first)  # before taking new ones, which could evict them
        sequence.block_ids = hits + pool.get_new_blocks(self._blocks_for(end_token) - len(hits), partition)
        sequence.registered_blocks = sequence.found_blocks = len(hits)
        sequence.computed_tokens = len(hits) * self._block_tokens
        if sequence.cached_tokens is None:
            self._count_first_admission(sequence)
        return True

    def _count_first_admission(self, sequence: Sequence) -> None:
        """Look-ups repeated after a preemption or by siblings are no news about the load, so only the first counts."""
        sequence.cached_tokens = sequence.computed_tokens
        if self.enabled and sequence.reads_cache and sequence.asks_first:
            self.statistics.record(len(sequence.token_ids), sequence.computed_tokens)
            if self.profile is not None:
                self.profile.record(self._name_blocks(sequence).digest, pack(sequence.token_ids))

    def restored(self, sequence: Sequence, blocks: int) -> None:
        """The next `blocks` blocks of an admitted sequence hold their K/V: they came from elsewhere."""
        tokens = blocks * self._block_tokens
        sequence.computed_tokens += tokens
        sequence.found_blocks += blocks
        if not sequence.preemptions:
            sequence.cached_tokens = (sequence.cached_tokens or 0) + tokens
        self.commit(sequence)

    def grow(self, sequence: Sequence, end_token: int) -> bool:
        """Take blocks until the table covers `end_token` tokens; False, and nothing done, when too few are free."""
        missing = self._blocks_for(end_token) - len(sequence.block_ids)
        if missing <= 0:
            return True
        available = self.pool.available(sequence.partition)
        if missing > available:
            return False
        if self._ahead_tokens:
            whole = self._blocks_for(min(end_token + self._ahead_tokens, sequence.limit_tokens))
            missing = max(missing, min(whole - len(sequence.block_ids), available - self._spare_blocks))
        sequence.block_ids += self.pool.get_new_blocks(missing, sequence.partition)
        return True

    def give_back_ahead(self, running: Iterable[Sequence]) -> bool:
        """Give back all blocks that were taken ahead of need; False when there were none."""
        return self._ahead_tokens > 0 and sum(self._trim(sequence) for sequence in running) > 0

    def _trim(self, sequence: Sequence) -> bool:
        needed = self._blocks_for(len(sequence.token_ids))
        if len(sequence.block_ids) <= needed:
            return False
        self.pool.free_blocks(reversed(sequence.block_ids[needed:]))
        del sequence.block_ids[needed:]
        return True

    def commit(self, sequence: Sequence) -> None:
        """Make the full blocks findable that are computed by now; only a step that succeeded may be committed."""
        full_blocks = sequence.computed_tokens // self._block_tokens
        first = sequence.registered_blocks
        if full_blocks <= first or not self.enabled or not sequence.stores:
            return
        parent = self._name_blocks(sequence)
        keys = sequence.block_keys
        if first:
            parent = keys[first - 1]
        for index in range(first, full_blocks):
            parent = keys[index] = self.pool.cache_full_block(sequence.block_ids[index], keys[index], parent)
        sequence.registered_blocks = full_blocks

    def _retain(self, sequence: Sequence, first: int) -> None:
        """Tell the pool how long the registered blocks from `first` on are to stay."""
        policy, end = sequence.request.cache, sequence.registered_blocks
        if policy.until_token is not None:
            end = min(end, policy.until_token // self._block_tokens)
        if first < end:
            until = None if policy.ttl_seconds is None else self._now + policy.ttl_seconds
            self.pool.retain(sequence.block_ids[first:end], policy.retention, until)

    def release(self, sequence: Sequence) -> None:
        """Give all blocks back, the tail to be evicted first; what is registered stays findable.

        What is wished for the blocks is said now, from the head on, so that a quota is used for heads first. Who wants
        to be forgotten soon takes nothing with it that others had cached.
        """
        retention = sequence.request.cache.retention
        if retention is not Retention.NORMAL and sequence.stores:
            self._retain(sequence, 0 if retention in LASTING else sequence.found_blocks)
        self.pool.free_blocks(reversed(sequence.block_ids))
        sequence.block_ids = []
        sequence.registered_blocks = sequence.found_blocks = sequence.computed_tokens = 0

    def reset(self) -> bool:
        """Forget everything cached; False, and nothing done, while any block is held."""
        done = self.pool.reset()
        if done:
            self.statistics.forget_recent()
        return done

    def check_integrity(self, sequence: Sequence) -> None:
        """Raise AssertionError unless the table covers what is computed, and registered blocks hold its very tokens."""
        if len(sequence.block_ids) < self._blocks_for(sequence.computed_tokens):
            raise AssertionError(f"{sequence.request_id}: computed more tokens than its blocks hold")
        if sequence.registered_blocks * self._block_tokens > sequence.computed_tokens:
            raise AssertionError(f"{sequence.request_id}: registered a block that is not computed")
        keys: list[BlockKey] = []
        self.hasher.extend(keys, self._name_blocks(sequence), pack(sequence.token_ids))
        for index in range(sequence.registered_blocks):
            kept = self.pool.key_of(sequence.block_ids[index])
            if kept is not None and not same_chain(kept, keys[index]):  # None: evicted while held
                raise AssertionError(f"{sequence.request_id}: block {index} is registered under other tokens")

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)

    def _name_blocks(self, sequence: Sequence) -> BlockKey:
        """Complete the keys of the sequence's full blocks; return the root that its first block follows."""
        root = sequence.root_key
        if root is None:
            request = sequence.request
            root = sequence.root_key = self.hasher.root(adapter=request.adapter, cache_salt=request.cache_salt)
        named_tokens = len(sequence.block_keys) * self._block_tokens
        if len(sequence.token_ids) - named_tokens >= self._block_tokens:
            self.hasher.extend(sequence.block_keys, root, pack(sequence.token_ids[named_tokens:]))
        return root
