"""What a request may ask about its blocks: not stored, evicted first, kept, pinned; and what that costs others."""

from __future__ import annotations

import pytest

from backends.retention import CachePolicy, Retention
from tests.backends.core_builders import (
    ManualClock,
    answer,
    build_engine,
    build_prompt,
    build_request,
    outputs,
    run_to_end,
)
from tests.backends.test_engine_policies import HALVES, PIN, fill, found_tokens


def test_what_must_not_be_stored_is_found_by_nobody():
    """Neither prompt nor answer, nor after a preemption."""
    engine, prompt = build_engine(), build_prompt(13)
    answer(engine, "a", prompt, cache=CachePolicy(Retention.NO_STORE))
    assert engine.pool.cached_blocks_count == 0
    answer(engine, "b", prompt)
    assert answer(engine, "c", prompt, cache=CachePolicy(Retention.NO_STORE)).cached_tokens == 12
    assert engine.pool.cached_blocks_count == 4


def test_a_pin_outlives_what_would_evict_it_and_ends_in_time():
    """Ten seconds from when its blocks were given back."""
    clock, prompt = ManualClock(), build_prompt(13)
    engine = build_engine(clock=clock, num_blocks=17)
    answer(engine, "a", prompt, cache=PIN, max_tokens=1)
    clock.now = 5.0
    fill(engine, 13)
    assert found_tokens(engine, prompt) == 12
    clock.now = 11.0
    fill(engine, 16)
    assert found_tokens(engine, prompt) == 0


def test_an_answer_that_takes_long_does_not_use_up_its_pin():
    """The time counts from the end."""
    clock, prompt = ManualClock(), build_prompt(13)
    engine = build_engine(clock=clock, num_blocks=17)
    engine.add(build_request("a", prompt, cache=PIN, max_tokens=2))
    engine.step()
    clock.now = 100.0
    run_to_end(engine)
    clock.now = 105.0
    fill(engine, 13)
    assert found_tokens(engine, prompt) == 12


def test_a_pin_may_cover_a_beginning_only():
    """The first eight tokens: the third block goes like any other."""
    engine, prompt = build_engine(clock=ManualClock(), num_blocks=17), build_prompt(13)
    answer(engine, "a", prompt, cache=CachePolicy(Retention.PIN, 10.0, until_token=8), max_tokens=1)
    assert engine.occupancy()[0].pinned == 2
    fill(engine, 14)
    assert found_tokens(engine, prompt) == 8


def test_what_was_cached_already_is_pinned_too():
    """The second request computes nothing of it, and wants it to stay."""
    engine, prompt = build_engine(clock=ManualClock(), num_blocks=17), build_prompt(13)
    answer(engine, "a", prompt, max_tokens=1)
    answer(engine, "b", prompt, cache=PIN, max_tokens=1)
    fill(engine, 13)
    assert found_tokens(engine, prompt) == 12


def test_evict_first_goes_before_older_blocks_but_takes_no_shared_ones_with_it():
    """Its own tail goes; the beginning that others had cached stays."""
    engine, head = build_engine(num_blocks=17), build_prompt(8)
    scan = head + build_prompt(17, seed=1)
    answer(engine, "a", [*head, 1], max_tokens=1)
    answer(engine, "scan", scan, cache=CachePolicy(Retention.EVICT_FIRST), max_tokens=1)
    assert found_tokens(engine, scan) == 24
    fill(engine, 14)
    assert found_tokens(engine, scan) == 8


def test_pins_give_way_to_a_request_that_nothing_else_could_let_in():
    """They cannot starve admission: alone in the engine, it takes their blocks."""
    clock = ManualClock()
    engine, prompt = build_engine(clock=clock, num_blocks=17), build_prompt(13)
    answer(engine, "a", prompt, cache=PIN, max_tokens=1)
    fill(engine, 16)
    assert found_tokens(engine, prompt) == 0
    answer(engine, "b", prompt, cache=PIN, max_tokens=1)
    answer(engine, "grows", build_prompt(50, seed=5), max_tokens=10)
    assert engine.stats().preemptions == 1


def test_pins_give_way_only_where_they_are_in_the_way():
    """What a partition pins within its floor helps nobody else."""
    engine = build_engine(partitions=HALVES, num_blocks=33)
    for name, partition in (("a", ""), ("b", "support")):
        answer(engine, name, build_prompt(9, seed=ord(name)), max_tokens=0, cache=PIN, partition=partition)
    answer(engine, "c", build_prompt(61, seed=3), max_tokens=3)
    assert {share.name: share.pinned for share in engine.occupancy()} == {"": 0, "support": 2}


@pytest.mark.parametrize("how", [{"n": 5}, {"max_tokens": 40}], ids=["forks", "preempted"])
@pytest.mark.parametrize("wish", [Retention.NORMAL, Retention.EVICT_FIRST])
def test_a_request_that_comes_back_to_its_own_blocks_hits_nothing(how, wish):
    """Siblings and preempted ones: what only one request ever wanted is neither hot nor kept."""
    engine = build_engine(num_blocks=17, auto_retention=True)
    for name in "ab":
        engine.add(build_request(name, build_prompt(13, seed=ord(name)), cache=CachePolicy(wish), **how))
    run_to_end(engine)
    assert engine.stats().preemptions > 0 or "n" in how
    found = [block for block in engine.pool.blocks(slice(1, None)) if block.key is not None]
    assert {(block.retention, block.uses) for block in found} == {(wish, 0)}


def test_pins_hold_while_somebody_runs_whose_end_would_help():
    """The one that does not fit waits for it instead."""
    engine, prompt = build_engine(clock=ManualClock(), num_blocks=17), build_prompt(13)
    answer(engine, "pinned", prompt, cache=PIN, max_tokens=0)
    engine.add(build_request("a", build_prompt(24, seed=1)))
    engine.step()
    engine.add(build_request("b", build_prompt(30, seed=2)))
    engine.step()
    assert engine.occupancy()[0].pinned == 3
    assert len(outputs(run_to_end(engine))) == 2


def test_a_pin_ends_though_nobody_asks_for_anything():
    """Whoever looks at an idle engine sees what is pinned now."""
    clock = ManualClock()
    engine = build_engine(clock=clock)
    answer(engine, "a", build_prompt(13), cache=PIN, max_tokens=1)
    assert engine.occupancy()[0].pinned == 3
    clock.now = 11.0
    assert engine.occupancy()[0].pinned == 0
