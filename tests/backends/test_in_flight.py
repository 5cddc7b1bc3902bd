"""Waiting for a block that somebody else computes: nothing is computed twice, and nobody waits for ever."""

from __future__ import annotations

import pytest

from backends.in_flight import InFlight
from backends.intake import MOST_PUT_OFF
from backends.retention import CachePolicy, Retention
from backends.types import StepFailedError
from tests.backends.core_builders import (
    SlotRunner,
    build_cache,
    build_engine,
    build_prompt,
    build_request,
    build_sequence,
    expected_output,
    outputs,
    run_to_end,
)


def build_pair(tokens: int = 21, *, first=None, second=None, **changes):
    """An engine with chunks of eight tokens and two equal prompts, after the first step."""
    runner, prompt = SlotRunner(), build_prompt(tokens)
    settings = {"long_prefill_token_threshold": 8, **changes}
    engine = build_engine(runner, **settings)
    engine.add(build_request("a", prompt, **(first or {})))
    engine.add(build_request("b", prompt, **(second or {})))
    engine.step()
    return engine, runner, prompt


def computed_of(runner: SlotRunner, name: str) -> int:
    return sum(count for batch in runner.batches for request_id, _, count in batch if request_id == name)


def test_the_second_equal_prompt_waits_for_the_first_and_computes_only_its_tail():
    """Twenty of twenty-one tokens are found when the first one is through; without sharing both compute all."""
    engine, runner, prompt = build_pair()
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.deferred) == (1, 1, 1)
    deltas = run_to_end(engine)
    assert outputs(deltas) == dict.fromkeys("ab", expected_output(prompt, 4))
    assert computed_of(runner, "b") == 1 + 3
    assert {delta.cached_tokens for delta in deltas if delta.request_id == "b"} == {20}
    alone, runner, prompt = build_pair(share_in_flight=False)
    assert alone.stats().deferred == 0
    assert outputs(run_to_end(alone)) == outputs(deltas)
    assert computed_of(runner, "b") > 4


def test_two_equal_prompts_in_one_step_are_computed_once():
    """Case H-03: the second starts a step later, with all blocks of the first."""
    runner, prompt = SlotRunner(), build_prompt(13)
    engine = build_engine(runner)
    for name in "abcd":
        engine.add(build_request(name, prompt))
    assert outputs(run_to_end(engine)) == dict.fromkeys("abcd", expected_output(prompt, 4))
    assert [computed_of(runner, name) for name in "abcd"] == [16, 4, 4, 4]


@pytest.mark.parametrize("own_tokens", [3, 15])
def test_who_shares_only_a_beginning_starts_when_that_is_computed(own_tokens):
    """Two blocks in common: it does not wait for the four that it has no use for, however long it is itself."""
    runner, head = SlotRunner(), build_prompt(8)
    engine = build_engine(runner, long_prefill_token_threshold=8)
    engine.add(build_request("a", head + build_prompt(16, seed=1)))
    other = head + build_prompt(own_tokens, seed=2)
    engine.add(build_request("b", other))
    engine.step()
    assert engine.stats().deferred == 0
    assert engine.stats().waiting == 1
    assert outputs(run_to_end(engine))["b"] == expected_output(other, 4)
    assert computed_of(runner, "b") == own_tokens + 3


def test_others_pass_the_one_that_waits():
    """It waits for blocks, not for room."""
    engine, _, _ = build_pair()
    engine.add(build_request("c", build_prompt(3, seed=9)))
    engine.step()
    assert [sequence.request_id for sequence in engine._scheduler.running] == ["a", "c"]


def test_a_burst_of_equal_prompts_holds_nobody_up():
    """A step looks at a few of them only, however many wait; the rest are looked at later, and all are answered."""
    engine, _, prompt = build_pair()
    for number in range(500):
        engine.add(build_request(f"{number}", prompt, max_tokens=1))
    engine.step()
    assert engine.stats().deferred <= 1 + MOST_PUT_OFF
    assert len(outputs(run_to_end(engine))) == 502


@pytest.mark.parametrize("how", ["aborted", "preempted", "failed", "resumed cold"])
def test_nobody_waits_for_one_that_stopped(how):
    """The waiting one takes over, and answers as if alone."""
    engine, runner, prompt = build_pair()
    if how == "aborted":
        engine.abort("a")
    elif how == "failed":
        runner.fail_next = True
        with pytest.raises(StepFailedError):
            engine.step()
    else:
        scheduler = engine._scheduler
        (victim,) = scheduler.running
        scheduler.running.remove(victim)
        scheduler._stop(victim)
        scheduler.waiting.add(victim)
        if how == "resumed cold":
            assert engine.reset_prefix_cache()
    engine.check_integrity()
    assert engine.stats().deferred == 0
    found = outputs(run_to_end(engine))
    assert found["b"] == expected_output(prompt, 4)
    assert how in ("aborted", "failed") or found["a"] == found["b"]


def test_an_aborted_follower_is_not_waited_with():
    """And it leaves no trace with the one that it followed."""
    engine, _, _ = build_pair()
    assert engine.abort("b")
    engine.check_integrity()
    assert set(outputs(run_to_end(engine))) == {"a"}


@pytest.mark.parametrize(
    "settings",
    [
        {"second": {"cache_salt": "other"}},
        {"second": {"reads_cache": False}},
        {"second": {"prompt_logprobs": 1}},
        {"first": {"cache": CachePolicy(Retention.NO_STORE)}},
        {"enable_prefix_caching": False},
    ],
    ids=["other salt", "reads nothing", "prompt logprobs", "first stores nothing", "cache off"],
)
def test_nobody_waits_for_what_it_will_not_find(settings):
    """Both compute."""
    engine, _, prompt = build_pair(**settings)
    assert engine.stats().deferred == 0
    assert outputs(run_to_end(engine)) == dict.fromkeys("ab", expected_output(prompt, 4))


def test_equal_digests_alone_make_nobody_wait():
    """Trap 3: with one digest for all blocks, tokens and parents decide who computes what."""
    engine = build_engine(bits=0, long_prefill_token_threshold=8)
    prompts = {"a": build_prompt(21), "b": build_prompt(21, seed=1), "c": build_prompt(4) + build_prompt(17, seed=2)}
    for name, prompt in prompts.items():
        engine.add(build_request(name, prompt))
    engine.step()
    assert engine.stats().deferred <= 1
    assert outputs(run_to_end(engine)) == {name: expected_output(prompt, 4) for name, prompt in prompts.items()}


def test_a_follower_that_would_cross_a_border_of_what_is_shared_is_let_go():
    """Two blocks registered at once: the follower shares the first of them only."""
    cache, in_flight = build_cache(), InFlight()
    leader = build_sequence(build_prompt(16), "leader")
    follower = build_sequence(build_prompt(8) + build_prompt(8, seed=1), "follower")
    cache.admit(leader, cache.lookup(leader), 16, spare_blocks=0)
    in_flight.start(leader)
    assert cache.lookup(follower) == []
    assert in_flight.leader_of(follower, 0, 3) is leader
    in_flight.follow(follower, leader)
    assert list(in_flight.faults()) == []
    leader.computed_tokens = 4
    cache.commit(leader)
    assert list(in_flight.advanced(leader, 4)) == []
    leader.computed_tokens = 12
    cache.commit(leader)
    assert list(in_flight.advanced(leader, 4)) == [follower]
    assert list(in_flight.stopped(leader)) == []
    in_flight.unfollow(follower)


def test_the_check_finds_a_follower_of_one_that_computes_nothing():
    """It would wait for ever."""
    in_flight = InFlight()
    in_flight.follow(build_sequence([1]), build_sequence([1], "leader"))
    assert any("computes nothing" in fault for fault in in_flight.faults())
