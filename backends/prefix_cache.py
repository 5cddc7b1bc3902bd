"""What is cached of a sequence's prefix: look-up, allocation in three stages, registering after the step."""

from __future__ import annotations

from collections import deque

from backends.block_pool import BlockPool
from backends.hashing import BlockHasher, BlockKey, pack, same_chain
from backends.sequence import Sequence

RECENT_REQUESTS = 1000
"""The window of the hit rate in the log line."""


class PrefixStatistics:
    """Tokens looked up and tokens found: since start, and over the last 1,000 requests."""

    __slots__ = ("_recent", "_recent_hits", "_recent_queries", "hits", "queries")

    def __init__(self) -> None:
        self.queries = self.hits = 0
        self.forget_recent()

    def record(self, queries: int, hits: int) -> None:
        """Count one request."""
        self.queries += queries
        self.hits += hits
        self._recent.append((queries, hits))
        self._recent_queries += queries
        self._recent_hits += hits
        if len(self._recent) > RECENT_REQUESTS:
            old_queries, old_hits = self._recent.popleft()
            self._recent_queries -= old_queries
            self._recent_hits -= old_hits

    def forget_recent(self) -> None:
        """Start the window anew, after a reset of the cache."""
        self._recent: deque[tuple[int, int]] = deque()
        self._recent_queries = self._recent_hits = 0

    @property
    def recent_hit_rate(self) -> float:
        """0..1; 0 before the first request."""
        return self._recent_hits / self._recent_queries if self._recent_queries else 0.0


class PrefixCache:
    """Gives sequences their blocks, and lets them share the full blocks of equal beginnings.

    A block is findable only after the step that computed it, so nobody reads what is not written yet.
    """

    def __init__(self, pool: BlockPool, hasher: BlockHasher, *, enabled: bool = True) -> None:
        self.pool = pool
        self.statistics = PrefixStatistics()
        self._hasher = hasher
        self._block_tokens = hasher.block_tokens
        self._enabled = enabled

    def lookup(self, sequence: Sequence) -> list[int]:
        """The cached blocks of the sequence's beginning, unheld: take them at once or not at all.

        At most `len(token_ids) - 1` tokens hit: the last one is always computed, for its logits.
        """
        if not self._enabled:
            return []
        parent = self._name_blocks(sequence)
        keys, hits, find = sequence.block_keys, [], self.pool.find
        for index in range((len(sequence.token_ids) - 1) // self._block_tokens):
            found = find(keys[index], parent)
            if found is None:
                break
            block_id, keys[index] = found
            parent = keys[index]
            hits.append(block_id)
        return hits

    def admit(self, sequence: Sequence, hits: list[int], end_token: int, *, spare_blocks: int) -> bool:
        """Hold `hits` and take new blocks up to `end_token`; False, and nothing done, when that does not fit.

        It fits when the *whole* sequence would fit beside `spare_blocks`, else several long prompts could be let in
        at once and none of them ever finish. Hits that nobody holds are free blocks that get used up.
        """
        whole = self._blocks_for(len(sequence.token_ids)) - len(hits) + self.pool.unheld(hits)
        if whole + spare_blocks > self.pool.free_blocks_count:
            return False
        self.pool.touch(hits)  # before taking new ones, which could evict them
        sequence.block_ids = hits + self.pool.get_new_blocks(self._blocks_for(end_token) - len(hits))
        sequence.registered_blocks = len(hits)
        sequence.computed_tokens = len(hits) * self._block_tokens
        if sequence.cached_tokens is None:
            self._count_first_admission(sequence)
        return True

    def _count_first_admission(self, sequence: Sequence) -> None:
        """Look-ups repeated after a preemption are no news about the load, so only the first one counts."""
        sequence.cached_tokens = sequence.computed_tokens
        if self._enabled:
            self.statistics.record(len(sequence.token_ids), sequence.computed_tokens)

    def grow(self, sequence: Sequence, end_token: int) -> bool:
        """Take blocks until the table covers `end_token` tokens; False, and nothing done, when too few are free."""
        missing = self._blocks_for(end_token) - len(sequence.block_ids)
        if missing > self.pool.free_blocks_count:
            return False
        if missing > 0:
            sequence.block_ids += self.pool.get_new_blocks(missing)
        return True

    def commit(self, sequence: Sequence) -> None:
        """Make the full blocks findable that are computed by now; only a step that succeeded may be committed."""
        full_blocks = sequence.computed_tokens // self._block_tokens
        if full_blocks <= sequence.registered_blocks or not self._enabled:
            return
        parent = self._name_blocks(sequence)
        keys = sequence.block_keys
        if sequence.registered_blocks:
            parent = keys[sequence.registered_blocks - 1]
        for index in range(sequence.registered_blocks, full_blocks):
            parent = keys[index] = self.pool.cache_full_block(sequence.block_ids[index], keys[index], parent)
        sequence.registered_blocks = full_blocks

    def release(self, sequence: Sequence) -> None:
        """Give all blocks back, the tail to be evicted first; what is registered stays findable."""
        self.pool.free_blocks(reversed(sequence.block_ids))
        sequence.block_ids = []
        sequence.registered_blocks = sequence.computed_tokens = 0

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
        self._hasher.extend(keys, self._name_blocks(sequence), pack(sequence.token_ids))
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
            root = sequence.root_key = self._hasher.root(adapter=request.adapter, cache_salt=request.cache_salt)
        named_tokens = len(sequence.block_keys) * self._block_tokens
        if len(sequence.token_ids) - named_tokens >= self._block_tokens:
            self._hasher.extend(sequence.block_keys, root, pack(sequence.token_ids[named_tokens:]))
        return root
