"""A hundred thousand random operations on pool and cache, every invariant checked after each."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.backends.cache_driver import CacheDriver, random_operation

TOKENS = st.integers(0, 1)


class CacheMachine(RuleBasedStateMachine):
    """The same driver under Hypothesis, which shrinks a failure to its shortest story."""

    @initialize(num_blocks=st.integers(5, 20), bits=st.sampled_from([None, 8, 0]))
    def build(self, num_blocks, bits):
        self.driver = CacheDriver(num_blocks=num_blocks, bits=bits)

    @rule(prompt=st.lists(TOKENS, min_size=1, max_size=9), salt=st.sampled_from([None, "s"]))
    def start(self, prompt, salt):
        self.driver.start(prompt, salt)

    @precondition(lambda self: self.driver.waiting)
    @rule()
    def admit(self):
        self.driver.admit()

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), tokens=st.integers(1, 9))
    def compute(self, data, tokens):
        self.driver.compute(data.draw(st.sampled_from(self.driver.running)), tokens)

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data(), token=TOKENS)
    def append(self, data, token):
        self.driver.append(data.draw(st.sampled_from(self.driver.running)), token)

    @precondition(lambda self: self.driver.running)
    @rule(data=st.data())
    def preempt(self, data):
        self.driver.preempt(data.draw(st.sampled_from(self.driver.running)))

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

    @invariant()
    def everything_is_consistent(self):
        if hasattr(self, "driver"):
            self.driver.check()


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestCacheMachine = CacheMachine.TestCase


@pytest.mark.parametrize("evicting", [False, True])
@pytest.mark.parametrize(("num_blocks", "bits"), [(6, None), (14, None), (14, 8), (24, 0)])
def test_twenty_thousand_random_operations_break_nothing(num_blocks, bits, evicting):
    """Eight times 20,000: what hits is right, all that could hit does, parents outlive children, nothing leaks."""
    driver, generator = CacheDriver(num_blocks=num_blocks, bits=bits), random.Random(20_000 + num_blocks)
    for _ in range(20_000):
        random_operation(driver, generator, evicting=evicting)
        driver.check()
    assert driver.hits > 500
    assert driver.preempted > 500
    for sequence in driver.running + driver.waiting:
        driver.finish(sequence)
    driver.check()
    assert driver.cache.pool.free_blocks_count == driver.cache.pool.usable_blocks
