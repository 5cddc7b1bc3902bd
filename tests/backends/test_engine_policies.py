"""What a request may ask of the scheduler: priority, a partition, blocks ahead; and who waits for whom then."""

from __future__ import annotations

import pytest

from backends.engine_config import EngineConfig
from backends.partitions import Partitions
from backends.retention import CachePolicy, Retention
from backends.types import RequestRefusedError
from tests.backends.core_builders import (
    answer,
    build_config,
    build_engine,
    build_prompt,
    build_request,
    build_sequence,
    expected_output,
    outputs,
    run_to_end,
)

PIN = CachePolicy(Retention.PIN, ttl_seconds=10.0)
HALVES = Partitions.parse(["support=0.5:0.5"])


def found_tokens(engine, prompt, **where) -> int:
    return 4 * len(engine.cache.lookup(build_sequence(prompt, **where)))


def fill(engine, blocks: int, name: str = "filler") -> None:
    """Compute a prompt of so many blocks, and end."""
    answer(engine, name, build_prompt(4 * blocks, seed=len(name) + 100 * blocks + ord(name[0])), max_tokens=0)


def test_an_unknown_partition_is_refused():
    """Callers do not name them; the gateway's word may be out of date."""
    with pytest.raises(RequestRefusedError, match="no cache partition 'sales'"):
        build_engine(partitions=HALVES).add(build_request(partition="sales"))


def test_a_request_over_its_partition_is_refused_with_both_numbers():
    """Trap 11, case H-18: 32 of 64 blocks are 128 tokens; one more can never run."""
    engine = build_engine(partitions=HALVES)
    with pytest.raises(RequestRefusedError, match=r"125 tokens and 4 .* 128 that fit"):
        engine.add(build_request("a", build_prompt(125), partition="support"))
    with pytest.raises(RequestRefusedError, match="128 that fit"):
        engine.add(build_request("b", build_prompt(126), max_tokens=3))
    assert answer(engine, "c", build_prompt(124), partition="support").finish_reason == "length"
    assert answer(engine, "d", build_prompt(124)).finish_reason == "length"


def test_one_partition_never_evicts_what_another_has_within_its_floor():
    """However much the other computes."""
    engine, prompt = build_engine(partitions=HALVES, num_blocks=17), build_prompt(25)
    answer(engine, "a", prompt, partition="support", max_tokens=1)
    for number in range(5):
        fill(engine, 8, f"{number}")
    assert found_tokens(engine, prompt, partition="support") == 24


def test_the_backlog_of_a_partition_at_its_ceiling_is_not_before_others():
    """However much its first one wants: it takes nothing from them."""
    engine = build_engine(partitions=Partitions.parse(["support=0:0.75"]), num_blocks=17, max_batched_tokens=99)
    for name, partition, tokens in (("a", "support", 32), ("b", "support", 36), ("c", "", 28)):
        engine.add(build_request(name, build_prompt(tokens, seed=ord(name)), partition=partition))
    engine.step()
    assert [name for name, _, _ in engine.runner.batches[0]] == ["a", "c"]


@pytest.mark.parametrize(("pinning", "watermark_blocks"), [("", 0), ("sales", 0), (None, 2)])
def test_a_request_waits_for_nobody_whose_end_would_not_help(pinning, watermark_blocks):
    """It fits into its share beside what others are promised; pins and spare blocks give way as if it were alone."""
    shares = Partitions.parse(["support=0.5:1", "sales=0:1"])
    engine = build_engine(partitions=shares, num_blocks=33, watermark_blocks=watermark_blocks)
    if pinning is not None:
        answer(engine, "pinned", build_prompt(17), max_tokens=0, cache=PIN, partition=pinning)
        assert sum(share.pinned for share in engine.occupancy()) == 4
    engine.add(build_request("long", build_prompt(8, seed=1), partition="support", max_tokens=50))
    engine.step()
    engine.add(build_request("whole", build_prompt(61, seed=2), max_tokens=3))
    engine.step()
    assert [name for name, _, _ in engine.runner.batches[-1]] == ["long", "whole"]


def test_a_full_partition_holds_up_its_own_and_nobody_else():
    """Its second request waits; the one behind it, of another partition, runs."""
    engine = build_engine(partitions=HALVES, num_blocks=17)
    for name, partition in (("a", "support"), ("b", "support"), ("c", "")):
        engine.add(build_request(name, build_prompt(20, seed=ord(name)), partition=partition, max_tokens=5))
    engine.step()
    scheduler = engine._scheduler
    assert [sequence.request_id for sequence in scheduler.running] == ["a", "c"]
    assert [sequence.request_id for sequence in scheduler.waiting] == ["b"]
    assert set(outputs(run_to_end(engine))) == set("abc")


def test_the_victim_is_one_whose_blocks_help():
    """A partition at its ceiling preempts its own, though another's sequence came last."""
    engine = build_engine(partitions=HALVES, num_blocks=17)
    prompts = {name: build_prompt(11, seed=ord(name)) for name in "abc"}
    for name, partition in (("a", "support"), ("b", "support"), ("c", "")):
        engine.add(build_request(name, prompts[name], partition=partition, max_tokens=12))
    deltas = run_to_end(engine)
    assert outputs(deltas) == {name: expected_output(prompt, 12) for name, prompt in prompts.items()}
    assert engine.stats().preemptions > 0
    order = [delta.request_id for delta in deltas if delta.finish_reason]
    assert order.index("c") < order.index("b")


def test_a_lower_priority_number_is_admitted_first():
    """Among equals by arrival; with fcfs the number means nothing."""
    for policy, expected in (("priority", ["c", "b", "a"]), ("fcfs", ["a", "b", "c"])):
        engine = build_engine(scheduling_policy=policy, max_sequences=1, max_batched_tokens=64)
        for name, priority in (("a", 5), ("b", 0), ("c", -1)):
            engine.add(build_request(name, build_prompt(5, seed=ord(name)), priority=priority))
        assert [delta.request_id for delta in run_to_end(engine) if delta.finish_reason] == expected


def test_the_least_important_is_preempted_even_if_it_came_first_and_its_tokens_go_to_others():
    """Trap 11: a victim that was planned already gives its budget back; the important ones are never preempted."""
    engine = build_engine(scheduling_policy="priority", num_blocks=9, max_batched_tokens=16)
    prompts = {name: build_prompt(7, seed=ord(name)) for name in "abc"}
    for name, priority in (("a", 9), ("b", 1), ("c", 2)):
        engine.add(build_request(name, prompts[name], priority=priority, max_tokens=12))
        if name == "a":
            deltas = engine.step()
    planned: list[int] = []
    while engine.has_work:
        deltas += engine.step()
        engine.check_integrity()
        planned.append(sum(count for _, _, count in engine.runner.batches[-1]))
    assert outputs(deltas) == {name: expected_output(prompt, 12) for name, prompt in prompts.items()}
    assert [delta.request_id for delta in deltas if delta.finish_reason] == ["b", "c", "a"]
    assert engine.runner.batches[0] == [("a", 0, 7)]
    assert max(planned) <= 16
    assert engine.stats().preemptions > 0


def test_a_long_prompt_leaves_tokens_for_others():
    """At most eight of it in a step."""
    engine = build_engine(long_prefill_token_threshold=8)
    engine.add(build_request("long", build_prompt(30)))
    engine.add(build_request("short", build_prompt(5, seed=1)))
    engine.step()
    assert engine.runner.batches == [[("long", 0, 8), ("short", 0, 5)]]


def test_blocks_are_taken_ahead_while_they_are_plenty():
    """Sixteen tokens ahead is four blocks at once; never beyond what the answer may need."""
    engine = build_engine(num_preallocate_tokens=16)
    engine.add(build_request("a", build_prompt(4), max_tokens=10))
    engine.step()
    (sequence,) = engine._scheduler.running
    assert len(sequence.block_ids) == 1
    engine.step()
    assert len(sequence.block_ids) == 4
    run_to_end(engine)
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1


def test_blocks_taken_ahead_are_given_back_before_anybody_is_preempted():
    """Two sequences fit, if none of them hoards."""
    engine = build_engine(num_preallocate_tokens=64, num_blocks=11)
    prompts = {name: build_prompt(8, seed=ord(name)) for name in "ab"}
    for name, prompt in prompts.items():
        engine.add(build_request(name, prompt, max_tokens=12))
    assert outputs(run_to_end(engine)) == {name: expected_output(prompt, 12) for name, prompt in prompts.items()}
    assert engine.stats().preemptions == 0


def test_blocks_taken_ahead_do_not_keep_a_request_waiting():
    """What is only in store is no use."""
    engine = build_engine(num_preallocate_tokens=64, num_blocks=11)
    engine.add(build_request("a", build_prompt(8), max_tokens=30))
    engine.step()
    engine.step()
    assert engine.stats().free_blocks == 0
    engine.add(build_request("b", build_prompt(8, seed=1), max_tokens=2))
    engine.step()
    assert engine.stats().running == 2


@pytest.mark.parametrize(
    "change",
    [
        {"scheduling_policy": "lifo"},
        {"num_preallocate_tokens": -1},
        {"long_prefill_token_threshold": -1},
        {"num_blocks": 1},
        {"max_batched_tokens": 4},
    ],
)
def test_a_configuration_with_which_nothing_could_run_is_refused(change):
    """Before any memory is taken."""
    with pytest.raises(ValueError, match=r"."):
        EngineConfig(**{**vars_of(build_config()), **change})


def vars_of(config: EngineConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in EngineConfig.__slots__}
