"""Random operations on a prefix cache beside a plain model of what it must find; checked after every one."""

from __future__ import annotations

import random
from collections.abc import Sequence as Items

from backends.sequence import Sequence
from tests.backends.core_builders import build_cache, build_sequence

Content = tuple[str | None, tuple[int, ...]]
"""What a cached block stands for: the salt, and all tokens up to the block's end."""

BLOCK_TOKENS = 2
OPERATIONS = ("start", "start", "compute", "compute", "append", "append", "finish", "preempt", "evict", "reset")


class CacheDriver:
    """Does what schedulers do to a cache, in any order, and knows what every block holds.

    The model is a plain map from block id to content: entered at commit, left when the block is given out again,
    evicted or reset. A look-up must hit exactly the longest beginning that the model holds, and only such blocks.
    """

    def __init__(self, *, num_blocks: int, bits: int | None = None) -> None:
        self.cache = build_cache(num_blocks, BLOCK_TOKENS, bits)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.content: dict[int, Content] = {}
        self.was_evicted = False
        self.hits = self.preempted = 0

    def start(self, prompt: Items[int], salt: str | None) -> None:
        """A new request: wait for a place, and take it at once if there is one."""
        self.waiting.append(build_sequence(prompt, cache_salt=salt))
        self.admit()

    def admit(self) -> None:
        """Look up, compare with the model, and take blocks, when the first waiting one fits."""
        sequence = self.waiting[0]
        hits = self.cache.lookup(sequence)
        assert hits == self._expected_hits(sequence, hits)
        if self.cache.admit(sequence, hits, len(sequence.token_ids), spare_blocks=0):
            self.running.append(self.waiting.pop(0))
            self.hits += len(hits)
            self._taken(sequence.block_ids[len(hits) :])

    def compute(self, sequence: Sequence, tokens: int) -> None:
        """A step over some tokens, committed."""
        sequence.computed_tokens = min(sequence.computed_tokens + tokens, len(sequence.token_ids))
        already = sequence.registered_blocks
        self.cache.commit(sequence)
        for index in range(already, sequence.registered_blocks):
            self.content[sequence.block_ids[index]] = self._content(sequence, index)

    def append(self, sequence: Sequence, token: int) -> None:
        """A sampled token; when its block cannot be had, somebody is preempted until it can."""
        sequence.token_ids.append(token)
        while sequence in self.running and not self.cache.grow(sequence, len(sequence.token_ids)):
            self.preempt(self.running[-1])
        self._taken(block_id for block_id in sequence.block_ids[sequence.registered_blocks :])

    def preempt(self, sequence: Sequence) -> None:
        """Back to waiting, with all tokens and no blocks."""
        self.running.remove(sequence)
        self.cache.release(sequence)
        self.waiting.insert(0, sequence)
        self.preempted += 1

    def finish(self, sequence: Sequence) -> None:
        """Ended or aborted, wherever it was."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        else:
            self.running.remove(sequence)
            self.cache.release(sequence)

    def evict(self, block_ids: Items[int]) -> None:
        """Forget some blocks, held or not."""
        self.cache.pool.evict(block_ids)
        self._taken(block_ids)
        self.was_evicted = True

    def reset(self) -> None:
        """Forget everything, if nobody holds anything."""
        assert self.cache.reset() == (not self.running)
        if not self.running:
            self.content.clear()
            self.was_evicted = False

    def check(self) -> None:
        """Every invariant of the pool, of each sequence's table, and of the model."""
        self.cache.pool.check_integrity([sequence.block_ids for sequence in self.running])
        assert self.cache.pool.cached_blocks_count == len(self.content)
        for sequence in self.running:
            self.cache.check_integrity(sequence)
        if not self.was_evicted:
            self._check_that_parents_are_cached()

    def _check_that_parents_are_cached(self) -> None:
        known = set(self.content.values())
        for salt, tokens in known:
            assert len(tokens) == BLOCK_TOKENS or (salt, tokens[:-BLOCK_TOKENS]) in known, "a cached block is an orphan"

    def _taken(self, block_ids) -> None:
        for block_id in block_ids:
            self.content.pop(block_id, None)

    def _content(self, sequence: Sequence, index: int) -> Content:
        return sequence.request.cache_salt, tuple(sequence.token_ids[: (index + 1) * BLOCK_TOKENS])

    def _expected_hits(self, sequence: Sequence, hits: list[int]) -> list[int]:
        """The hits themselves, when each holds what it should and the next block is nowhere."""
        known = set(self.content.values())
        for index, block_id in enumerate(hits):
            assert self.content[block_id] == self._content(sequence, index), "a hit on foreign content"
        following = (len(hits) + 1) * BLOCK_TOKENS
        missed = following < len(sequence.token_ids) and self._content(sequence, len(hits)) in known
        assert not missed, "a cached block was not found"
        assert len(hits) * BLOCK_TOKENS < len(sequence.token_ids), "nothing is left to compute"
        return hits


def random_operation(driver: CacheDriver, generator: random.Random, *, evicting: bool) -> None:
    """One operation of a kind that is possible now; prompts are short and share beginnings all the time."""
    kind = generator.choice(OPERATIONS)
    if kind == "start" and len(driver.waiting) < 4:
        length = generator.randint(1, 9)
        prompt = [generator.randrange(2) for _ in range(length)]
        driver.start(prompt, generator.choice((None, None, "s")))
    elif kind == "compute" and driver.running:
        driver.compute(generator.choice(driver.running), generator.randint(1, 6))
    elif kind == "append" and driver.running:
        sequence = generator.choice(driver.running)
        if len(sequence.token_ids) < 2 * BLOCK_TOKENS * 4:
            driver.append(sequence, generator.randrange(2))
    elif kind == "finish" and (driver.running or driver.waiting):
        driver.finish(generator.choice(driver.running + driver.waiting))
    elif kind == "preempt" and driver.running:
        driver.preempt(generator.choice(driver.running))
    elif kind == "evict" and evicting:
        driver.evict([generator.randint(1, driver.cache.pool.usable_blocks)])
    elif kind == "reset" and generator.random() < 0.2:
        driver.reset()
    elif driver.waiting:
        driver.admit()
