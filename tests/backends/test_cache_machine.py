"""Random operations on pool and cache, every invariant checked after each; `make worker-operations` does many more."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backends.partitions import NO_PARTITIONS
from tests.backends.cache_driver import TWO_PARTITIONS, CacheDriver, random_operation

TOKENS = st.integers(0, 1)
OPERATIONS = int(os.environ.get("HOMING_TEST_OPERATIONS", "20000"))
"""All settings together."""
STEPS = 50
EXAMPLES = OPERATIONS // STEPS if "HOMING_TEST_OPERATIONS" in os.environ else 40
"""Hypothesis takes milliseconds a step, so that only who asks for many operations gets as many from it too."""


class CacheMachine(RuleBasedStateMachine):
    """The same driver under Hypothesis, which shrinks a failure to its shortest story."""

    @initialize(
        num_blocks=st.integers(5, 20),
        bits=st.sampled_from([None, 8, 0]),
        partitions=st.sampled_from([NO_PARTITIONS, TWO_PARTITIONS]),
        ahead_tokens=st.sampled_from([0, 4]),
        pins=st.booleans(),
    )
    def build(self, **sizes):
        self.driver = CacheDriver(**sizes)

    @rule(
        prompt=st.lists(TOKENS, min_size=1, max_size=9),
        salt=st.sampled_from([None, "s"]),
        data=st.data(),
    )
    def start(self, prompt, salt, data):
        policy = data.draw(st.sampled_from(self.driver.policies))
        self.driver.start(prompt, salt, policy, data.draw(st.sampled_from(self.driver.partitions)))

    @precondition(lambda self: self.driver.waiting)
    @rule()
    def admit_and_restore(self):
        self.driver.admit()

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), tokens=st.integers(1, 9))
    def compute(self, data, tokens):
        self.driver.compute(data.draw(st.sampled_from(self.driver.running)), tokens)

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), token=TOKENS)
    def append(self, data, token):
        sequence = data.draw(st.sampled_from(self.driver.running))
        if len(sequence.token_ids) < 7:
            self.driver.append(sequence, token)

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data())
    def preempt(self, data):
        self.driver.preempt(data.draw(st.sampled_from(self.driver.running)))

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data())
    def fork(self, data):
        self.driver.fork(data.draw(st.sampled_from(self.driver.running)))

    @precondition(lambda self: self.driver.running or self.driver.waiting)
    @rule(data=st.data())
    def finish(self, data):
        self.driver.finish(data.draw(st.sampled_from(self.driver.running + self.driver.waiting)))

    @rule(data=st.data())
    def evict(self, data):
        self.driver.evict([data.draw(st.integers(1, self.driver.cache.pool.usable_blocks))])

    @rule()
    def reset(self):
        self.driver.reset()

    @rule(seconds=st.sampled_from([0.5, 4.0]))
    def pass_time(self, seconds):
        self.driver.pass_time(seconds)

    @invariant()
    def everything_is_consistent(self):
        if hasattr(self, "driver"):
            self.driver.check()


CacheMachine.TestCase.settings = settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)
TestCacheMachine = CacheMachine.TestCase

SETTINGS = {
    "tiny": {"num_blocks": 12},
    "small": {"num_blocks": 20},
    "8-bit hash": {"num_blocks": 20, "bits": 8},
    "one hash for all": {"num_blocks": 30, "bits": 0},
    "pins": {"num_blocks": 30, "pins": True},
    "partitions": {"num_blocks": 40, "partitions": TWO_PARTITIONS, "pins": True},
    "taken ahead": {"num_blocks": 24, "ahead_tokens": 6},
    "frequency": {"num_blocks": 24, "eviction": "lfu"},
    "segments": {"num_blocks": 24, "eviction": "slru"},
}


def run_random(setting: str, operations: int, seed: int, *, evicting: bool) -> CacheDriver:
    """So many operations, checked after each; then everybody ends, and every block is free."""
    driver, generator = CacheDriver(**SETTINGS[setting]), random.Random(seed)
    for _ in range(operations):
        random_operation(driver, generator, evicting=evicting)
        driver.check()
    for sequence in driver.running + driver.waiting:
        driver.finish(sequence)
    driver.check()
    assert driver.cache.pool.free_blocks_count == driver.cache.pool.usable_blocks
    return driver


@pytest.mark.parametrize("evicting", [False, True], ids=["", "evicting"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_random_operations_break_nothing(setting, evicting):
    """What hits is right, all that could hit does, parents outlive children, pins hold, nothing leaks."""
    driver = run_random(setting, OPERATIONS // (2 * len(SETTINGS)), 20_000, evicting=evicting)
    for seen in (driver.hits, driver.preempted, driver.restored, driver.forked):
        assert seen >= OPERATIONS // 2500
