"""Random operations on a prefix cache beside a plain model of what it must find; checked after every one."""

from __future__ import annotations

import random
from collections.abc import Sequence as Items

from backends.fork import Forks
from backends.partitions import NO_PARTITIONS, Partitions
from backends.retention import ORDINARY, CachePolicy, Retention
from backends.sequence import Sequence
from tests.backends.cache_model import CacheModel, Content
from tests.backends.core_builders import build_cache, build_sequence

BLOCK_TOKENS = 2
MOST_TOKENS = 16
OPERATIONS = (
    *("start", "start", "compute", "compute", "append", "append", "finish", "preempt"),
    *("fork", "evict", "reset", "pass time"),
)
PIN = CachePolicy(Retention.PIN, ttl_seconds=6.0)
POLICIES = (
    *(ORDINARY, ORDINARY, ORDINARY, ORDINARY, CachePolicy(Retention.NO_STORE), CachePolicy(Retention.EVICT_FIRST)),
    *(CachePolicy(Retention.PRIORITY), CachePolicy(Retention.PRIORITY, 3.0, until_token=4)),
)
TWO_PARTITIONS = Partitions.parse(["p=0.3:0.6"])


class CacheDriver:
    """Does what schedulers do to a cache, in any order, and knows what every block holds.

    A look-up must hit exactly the longest beginning that the model holds, and only such blocks. What a tier has kept
    is restored when a sequence is admitted. `was_evicted` is set when parents may have gone before their children: by
    `evict`, where a child is in another partition, where copies of a parent share out the hits that keep it, and where
    there were pins left for the child only.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        bits: int | None = None,
        partitions: Partitions = NO_PARTITIONS,
        eviction: str = "lru",
        ahead_tokens: int = 0,
        pins: bool = False,
    ) -> None:
        self.model = CacheModel()
        pool = {"partitions": partitions, "journal": self.model, "eviction": eviction}
        self.cache = build_cache(num_blocks, BLOCK_TOKENS, bits, pool=pool, ahead_tokens=ahead_tokens)
        self.forks = Forks(self.cache, BLOCK_TOKENS)
        self.partitions = partitions.names
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.policies = (*POLICIES, PIN, PIN) if pins else POLICIES
        self.may_orphan = len(self.partitions) > 1 or eviction != "lru" or pins
        self.was_evicted = self.may_orphan
        self.hits = self.preempted = self.restored = self.forked = 0

    def start(self, prompt: Items[int], salt: str | None, policy: CachePolicy = ORDINARY, partition: str = "") -> None:
        """A new request: wait for a place, and take it at once if there is one."""
        self.waiting.append(build_sequence(prompt, cache_salt=salt, cache=policy, partition=partition))
        self.admit()

    def admit(self) -> None:
        """Look up, compare with the model, and take blocks, when the first waiting one fits."""
        sequence = self.waiting[0]
        hits = self.cache.lookup(sequence)
        self._check_hits(sequence, hits)
        if not self.cache.admit(sequence, hits, len(sequence.token_ids), spare_blocks=0):
            return
        self.running.append(self.waiting.pop(0))
        self.hits += len(hits)
        self.model.taken(sequence.block_ids[len(hits) :])
        self._restore(sequence, len(hits))

    def _restore(self, sequence: Sequence, hits: int) -> None:
        """Bring back what the tier has of the blocks after the hits."""
        end = hits
        while end < self.cache.findable_blocks(sequence) and self._content(sequence, end) in self.model.kept:
            end += 1
        if end > hits:
            self._registering(sequence, lambda: self.cache.restored(sequence, end - hits))
            self.restored += end - hits

    def compute(self, sequence: Sequence, tokens: int) -> None:
        """A step over some tokens, committed; the copies before it are made."""
        self.forks.carried_out()
        sequence.computed_tokens = min(sequence.computed_tokens + tokens, len(sequence.token_ids))
        self._registering(sequence, lambda: self.cache.commit(sequence))

    def _registering(self, sequence: Sequence, work) -> None:
        already = sequence.registered_blocks
        work()
        for index in range(already, sequence.registered_blocks):
            self.model.content[sequence.block_ids[index]] = self._content(sequence, index)

    def append(self, sequence: Sequence, token: int) -> None:
        """A sampled token; when its block cannot be had, stores are given back, then somebody is preempted."""
        sequence.token_ids.append(token)
        before = len(sequence.block_ids)
        while sequence in self.running and not self.cache.grow(sequence, len(sequence.token_ids)):
            if not self.cache.give_back_ahead(self.running):
                own = [one for one in self.running if one.request.partition == sequence.request.partition]
                self.preempt(own[-1])
        self.model.taken(sequence.block_ids[before:])

    def fork(self, parent: Sequence) -> None:
        """A second answer to a computed prompt, if there is room."""
        request = parent.request
        child = build_sequence(
            parent.token_ids[: parent.prompt_tokens],
            cache_salt=request.cache_salt,
            cache=request.cache,
            partition=request.partition,
        )
        if parent.computed_tokens >= parent.prompt_tokens and self.forks.start(parent, child, spare_blocks=0):
            self.model.taken(child.block_ids[-1:])
            self.running.append(child)
            self.forked += 1

    def preempt(self, sequence: Sequence) -> None:
        """Back to waiting, with all tokens and no blocks."""
        self._stop(sequence)
        self.waiting.insert(0, sequence)
        self.preempted += 1

    def finish(self, sequence: Sequence) -> None:
        """Ended or aborted, wherever it was."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        else:
            self._stop(sequence)

    def _stop(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.forks.forget(sequence)
        table, registered = sequence.block_ids, sequence.registered_blocks
        self.cache.release(sequence)
        assert sequence.registered_blocks == 0, "a sequence without blocks has registered some"
        sequence.block_ids = table
        self._note_pins(sequence, registered)
        sequence.block_ids = []

    def _note_pins(self, sequence: Sequence, blocks: int) -> None:
        if sequence.request.cache is PIN:
            pool = self.cache.pool
            found = [pool.blocks(slice(block_id, block_id + 1))[0] for block_id in sequence.block_ids[:blocks]]
            self.model.note_pins(found, self.model.now + 6.0)

    def evict(self, block_ids: Items[int]) -> None:
        """Forget some blocks, held or not."""
        self.cache.pool.evict(block_ids)
        self.model.taken(block_ids)
        self.was_evicted = True

    def reset(self) -> None:
        """Forget everything, if nobody holds anything."""
        assert self.cache.reset() == (not self.running)
        if not self.running:
            self.model.clear()
            self.was_evicted = self.may_orphan

    def pass_time(self, seconds: float) -> None:
        """The next step is that much later; pins end."""
        self.model.now += seconds
        self.cache.tick(self.model.now)

    def check(self) -> None:
        """Every invariant of the pool, of each sequence's table, and of the model."""
        tables = [sequence.block_ids for sequence in self.running]
        self.cache.pool.check_integrity([*tables, self.forks.held_blocks])
        assert self.cache.pool.cached_blocks_count == len(self.model.content)
        for sequence in self.running:
            self.cache.check_integrity(sequence)
        self.model.check(BLOCK_TOKENS, orphans=self.was_evicted)

    def _content(self, sequence: Sequence, index: int) -> Content:
        return sequence.request.cache_salt, tuple(sequence.token_ids[: (index + 1) * BLOCK_TOKENS])

    def _check_hits(self, sequence: Sequence, hits: list[int]) -> None:
        """Each hit holds what it should, and the next block is nowhere."""
        content = self.model.content
        for index, block_id in enumerate(hits):
            assert content[block_id] == self._content(sequence, index), "a hit on foreign content"
        following = (len(hits) + 1) * BLOCK_TOKENS
        missed = following < len(sequence.token_ids) and self._content(sequence, len(hits)) in set(content.values())
        assert not missed, "a cached block was not found"
        assert len(hits) * BLOCK_TOKENS < len(sequence.token_ids), "nothing is left to compute"


def random_operation(driver: CacheDriver, generator: random.Random, *, evicting: bool) -> None:
    """One operation of a kind that is possible now; prompts are short and share beginnings all the time."""
    kind = generator.choice(OPERATIONS)
    one = generator.choice(driver.running) if driver.running else None
    if kind == "start" and len(driver.waiting) < 4:
        prompt = [generator.randrange(2) for _ in range(generator.randint(1, 9))]
        salt, policy = generator.choice((None, None, "s")), generator.choice(driver.policies)
        driver.start(prompt, salt, policy, generator.choice(driver.partitions))
    elif kind == "compute" and one is not None:
        driver.compute(one, generator.randint(1, 6))
    elif kind == "append" and one is not None:
        if len(one.token_ids) < MOST_TOKENS:
            driver.append(one, generator.randrange(2))
    elif kind == "finish" and (driver.running or driver.waiting):
        driver.finish(generator.choice(driver.running + driver.waiting))
    elif kind == "preempt" and one is not None:
        driver.preempt(one)
    elif kind == "fork" and one is not None and len(driver.running) < 8:
        driver.fork(one)
    elif kind == "evict" and evicting:
        driver.evict([generator.randint(1, driver.cache.pool.usable_blocks)])
    elif kind == "reset" and generator.random() < 0.2:
        driver.reset()
    elif kind == "pass time":
        driver.pass_time(generator.choice((0.5, 4.0)))
    elif driver.waiting:
        driver.admit()
