"""The whole engine under random calls, everything switched on: every answer is right, nothing leaks, all end."""

from __future__ import annotations

import os
import random

import pytest

from backends.partitions import Partitions
from backends.retention import CachePolicy, Retention
from backends.types import StepFailedError
from tests.backends.core_builders import ManualClock, Notes, SlotRunner, build_engine, build_request, expected_output
from tests.backends.test_equality import build_prompts
from tests.backends.toy_tier import ToyTier

CALLS = int(os.environ.get("HOMING_TEST_OPERATIONS", "20000")) // 8
"""Of each setting; `make worker-operations` makes more."""

POLICIES = (
    *(CachePolicy(), CachePolicy(), CachePolicy(), CachePolicy(Retention.NO_STORE)),
    *(CachePolicy(Retention.EVICT_FIRST), CachePolicy(Retention.PRIORITY, 5.0), CachePolicy(Retention.PIN, 5.0)),
    CachePolicy(Retention.PIN, 20.0, until_token=8),
)
SETTINGS = {
    "everything": {"num_blocks": 24, "num_preallocate_tokens": 8, "long_prefill_token_threshold": 7},
    "8-bit hash": {"num_blocks": 20, "bits": 8, "watermark_blocks": 1},
    "by priority": {"num_blocks": 16, "scheduling_policy": "priority", "max_batched_tokens": 12},
    "partitions": {"num_blocks": 40, "partitions": Partitions.parse(["p=0.3:0.6", "q=0.2:0.3"])},
    "nothing shared": {"num_blocks": 16, "share_in_flight": False, "enable_prefix_caching": False},
    "hot pinned": {"num_blocks": 24, "auto_retention": True, "eviction": "lfu", "max_sequences": 3},
}
MOST_ANSWER_TOKENS = 9


class EngineDriver:
    """Random calls on one engine, and what each request must answer."""

    def __init__(self, setting: str, seed: int) -> None:
        self.generator = random.Random(seed)
        self.runner, self.clock, self.notes = SlotRunner(), ManualClock(), Notes()
        self.tier = ToyTier(self.runner, generator=random.Random(seed))
        self.engine = build_engine(
            self.runner,
            clock=self.clock,
            observer=self.notes,
            journal=self.tier,
            offload=self.tier,
            **SETTINGS[setting],
        )
        self.wanted: dict[tuple[str, int], list[int]] = {}
        self.found: dict[tuple[str, int], list[int]] = {}
        self.numbers = iter(range(1_000_000))
        self.lost = self.finished = 0

    def call(self) -> None:
        """One call of a random kind; the engine is checked after it."""
        chance = self.generator.random()
        if chance < 0.18 and self.engine.stats().waiting < 12:
            self.add()
        elif chance < 0.22 and self.wanted:
            name, _ = self.generator.choice(list(self.wanted))
            self.engine.abort(name)
            self.forget(name)
        elif chance < 0.23:
            assert self.engine.reset_prefix_cache() == (self.engine.stats().running == 0)
        elif chance < 0.24:
            assert self.engine.reset_prefix_cache(preempt=True)
        else:
            self.step(fails=chance < 0.26)
        self.engine.check_integrity()

    def add(self) -> None:
        generator, name = self.generator, f"{next(self.numbers)}"
        (prompt,) = build_prompts(1, generator).values()
        tokens, n = generator.randint(0, MOST_ANSWER_TOKENS), generator.choice((1, 1, 1, 2, 4))
        request = build_request(
            name,
            prompt,
            max_tokens=tokens,
            n=n,
            cache=generator.choice(POLICIES),
            priority=generator.randint(0, 3),
            partition=generator.choice(self.engine.config.partitions.names),
            cache_salt=generator.choice((None, None, "s")),
            reads_cache=generator.random() < 0.9,
            prompt_logprobs=generator.choice((None,) * 9 + (0,)),
            arrival_seconds=self.clock.now,
        )
        self.engine.add(request)
        for choice in range(n):
            self.wanted[name, choice] = expected_output(prompt, tokens)
            self.found[name, choice] = []

    def step(self, *, fails: bool) -> None:
        self.clock.now += self.generator.choice((0.1, 0.1, 2.0))
        self.runner.fail_next = fails
        try:
            deltas = self.engine.step()
        except StepFailedError as error:
            for name in error.request_ids:
                self.forget(name)
            return
        finally:
            self.runner.fail_next = False
        for delta in deltas:
            answer = delta.request_id, delta.choice
            self.found[answer] += delta.token_ids
            assert delta.cached_tokens < delta.prompt_tokens
            if delta.finish_reason is not None:
                assert self.found.pop(answer) == self.wanted.pop(answer)
                self.finished += 1

    def forget(self, name: str) -> None:
        for answer in [answer for answer in self.wanted if answer[0] == name]:
            del self.wanted[answer], self.found[answer]
            self.lost += 1

    def end(self) -> None:
        """Everybody who is left finishes; nothing is held by anybody then."""
        for _ in range(3000):
            if not self.engine.has_work:
                break
            self.step(fails=False)
            self.engine.check_integrity()
        assert self.wanted == {}
        assert self.tier.open == {}
        stats = self.engine.stats()
        assert (stats.running, stats.waiting, stats.deferred) == (0, 0, 0)
        assert stats.free_blocks == stats.num_blocks - 1
        assert stats.preemptions == sum(end.preemptions for end in self.notes.ends)
        assert stats.prefix_hits + stats.external_hits < stats.prefix_queries or not stats.prefix_queries


@pytest.mark.parametrize("setting", SETTINGS)
def test_random_calls_break_no_answer_and_no_invariant(setting):
    """Adds, aborts, failed steps, resets, time; forks, tiers, pins, priorities, partitions: case H-20 in small."""
    driver = EngineDriver(setting, seed=len(setting))
    for _ in range(CALLS):
        driver.call()
    driver.end()
    assert driver.finished > CALLS // 20
    assert driver.lost > CALLS // 50
    assert driver.engine.stats().preemptions > 0


@pytest.mark.parametrize("bits", [8, 0])
def test_a_hash_of_eight_bits_or_none_serves_no_foreign_block(bits, monkeypatch):
    """Must hold with everything switched on: 0 wrong K/V, and the cache is used."""
    monkeypatch.setitem(SETTINGS, "8-bit hash", {**SETTINGS["8-bit hash"], "bits": bits})
    driver = EngineDriver("8-bit hash", seed=99)
    for _ in range(CALLS):
        driver.call()
    driver.end()
    assert driver.engine.stats().prefix_hits > CALLS // 10
