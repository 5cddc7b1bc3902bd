"""Random operations on pool, policies, partitions and pins, every invariant checked after each."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backends.eviction import EVICTION_POLICIES
from tests.backends.pool_driver import NAMES, WISHES, PoolDriver, random_operation

CONTENTS = st.lists(st.integers(0, 2), min_size=1, max_size=5)


class PoolMachine(RuleBasedStateMachine):
    """The driver under Hypothesis, which shrinks a failure to its shortest story."""

    @initialize(
        blocks=st.integers(3, 20),
        eviction=st.sampled_from(list(EVICTION_POLICIES)),
        partitions=st.booleans(),
        auto_retention=st.booleans(),
        pin_quota=st.sampled_from([0.0, 0.25, 1.0]),
    )
    def build(self, blocks, **settings):
        self.driver = PoolDriver(blocks, **settings)

    @rule(contents=CONTENTS, name=st.sampled_from(NAMES))
    def start(self, contents, name):
        self.driver.start(contents, name if name in self.driver.names else "")

    @rule(count=st.integers(0, 4), name=st.sampled_from(NAMES))
    def take(self, count, name):
        self.driver.take(count, name if name in self.driver.names else "")

    @precondition(lambda self: self.driver.tables)
    @rule(data=st.data())
    def finish(self, data):
        self.driver.finish(data.draw(st.sampled_from(self.driver.tables)))

    @precondition(lambda self: self.driver.tables)
    @rule(data=st.data(), ends=st.booleans(), wish=st.sampled_from(WISHES), seconds=st.sampled_from([0.5, 5.0, 50.0]))
    def wish(self, data, ends, wish, seconds):
        table = data.draw(st.sampled_from(self.driver.tables))
        if ends:
            self.driver.finish(table)
        self.driver.wish(table, wish, seconds)

    @rule(seconds=st.sampled_from([0.1, 1.0, 30.0]))
    def tick(self, seconds):
        self.driver.tick(seconds)

    @rule(data=st.data())
    def evict(self, data):
        self.driver.evict(data.draw(st.integers(1, self.driver.pool.usable_blocks)))

    @rule()
    def release(self):
        self.driver.pool.release_pins()

    @rule()
    def reset(self):
        self.driver.reset()

    @invariant()
    def everything_is_consistent(self):
        if hasattr(self, "driver"):
            self.driver.check()


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestPoolMachine = PoolMachine.TestCase


@pytest.mark.parametrize("partitions", [False, True])
@pytest.mark.parametrize("eviction", EVICTION_POLICIES)
def test_thousands_of_random_operations_break_nothing(eviction, partitions):
    """Eight times 2,000: floors, ceilings, pins, quotas, references, queues, the journal, all after each."""
    generator = random.Random(f"{eviction} {partitions}")
    driver = PoolDriver(18, eviction=eviction, partitions=partitions, auto_retention=generator.random() < 0.5)
    for _ in range(2000):
        random_operation(driver, generator, plain=False)
        driver.check()
    assert driver.hits > 300
    assert driver.evicted > 100
    assert driver.refused > 20


@pytest.mark.parametrize("auto_retention", [False, True])
@pytest.mark.parametrize("eviction", EVICTION_POLICIES)
def test_no_policy_evicts_a_head_before_its_tail(eviction, auto_retention):
    """Trap 8 for each policy: after each of 2,000 operations the parent of every cached block is cached."""
    generator = random.Random(f"{eviction} {auto_retention}")
    driver = PoolDriver(14, eviction=eviction, partitions=False, auto_retention=auto_retention)
    for _ in range(2000):
        random_operation(driver, generator, plain=True)
        driver.check_that_parents_are_cached()
    assert driver.evicted > 100
