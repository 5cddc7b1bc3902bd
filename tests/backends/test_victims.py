"""Who gives way, and who may pass: also where a pool has partitions."""

from __future__ import annotations

import pytest

from backends.partition_line import PartitionLine
from backends.partitions import Partitions
from backends.retention import Retention
from backends.victims import Victims
from tests.backends.core_builders import build_cache, build_computed, build_config, build_prompt, build_sequence

SHARES = Partitions.parse(["p=0.25:0.5", "q=0.25:1.0"])


def build_running(*wanted: tuple[str, int], num_blocks: int = 17):
    """A cache with partitions and running sequences of so many blocks each."""
    cache = build_cache(num_blocks, pool={"partitions": SHARES})
    running = []
    for number, (partition, blocks) in enumerate(wanted):
        prompt = build_prompt(4 * blocks, seed=number)
        sequence = build_computed(cache, prompt, f"{number}", partition=partition)
        sequence.rank = (0, number)
        running.append(sequence)
    return cache, running


def choose(policy: str, cache, running, wanting: int, partitions=SHARES):
    config = build_config(scheduling_policy=policy, partitions=partitions)
    return running.index(Victims(config, cache.pool).choose(running, running[wanting]))


def test_without_partitions_the_last_one_goes():
    """With fcfs who was let in last, with priority who is the least important."""
    cache, running = build_running(("", 2), ("", 2), ("", 2))
    running[0].rank = (9, 0)
    assert choose("fcfs", cache, running, 0, Partitions()) == 2
    assert choose("priority", cache, running, 2, Partitions()) == 0


@pytest.mark.parametrize(
    ("wanted", "wanting", "victim"),
    [
        ([("p", 8), ("", 2), ("", 2)], 0, 0),
        ([("p", 4), ("q", 8), ("q", 4)], 0, 2),
        ([("", 8), ("p", 2), ("q", 2)], 0, 0),
        ([("p", 2), ("", 6), ("q", 4)], 0, 1),
    ],
    ids=["its own at its ceiling", "who has more than its floor", "nobody below its floor", "the last that helps"],
)
def test_a_victim_is_one_whose_blocks_help(wanted, wanting, victim):
    """The wanting one itself is the last resort."""
    cache, running = build_running(*wanted)
    for policy in ("fcfs", "priority"):
        assert choose(policy, cache, running, wanting) == victim


def test_of_those_that_help_the_least_important_goes():
    """Where it goes by priority, not by who was let in last."""
    cache, running = build_running(("p", 4), ("q", 4), ("q", 4), ("", 4))
    running[1].rank, running[3].rank = (5, 1), (9, 3)
    assert choose("priority", cache, running[:3], 0) == 1
    assert choose("fcfs", cache, running[:3], 0) == 2


def test_pins_that_fill_a_partition_cost_nobody_else_its_place():
    """It lacks nothing but its own ceiling, so the blocks of others would not help."""
    cache, running = build_running(("p", 6), ("q", 8))
    pinned = build_computed(cache, build_prompt(8, seed=9), "pinned", partition="p")
    cache.pool.retain(pinned.block_ids, Retention.PIN, 9.0)
    cache.release(pinned)
    assert cache.pool.available("p") == 0
    assert choose("fcfs", cache, running, 0) == 0


def test_a_partition_at_its_ceiling_holds_up_its_own_only():
    """The pool has room for others, however much the waiting one wants."""
    cache, _ = build_running(("p", 8))
    line = PartitionLine(cache.pool)
    line.is_too_long_for(build_sequence(build_prompt(32), partition="p"))
    assert line.held_up == {"p"}
    assert line.passes(build_sequence([1], partition="q"), 4)
    assert line.passes(build_sequence([1]), 4)


def test_a_full_pool_leaves_the_others_what_is_promised_and_no_more():
    """Up to its floor a partition takes nothing from the one that waits; beyond it, it would."""
    cache, _ = build_running(("", 8))
    line = PartitionLine(cache.pool)
    line.is_too_long_for(build_sequence(build_prompt(12)))
    assert line.passes(build_sequence(build_prompt(16), partition="q"), 4)
    assert not line.passes(build_sequence(build_prompt(17), partition="q"), 4)
    assert line.held_up == {"", "q"}
