"""Who gives way, and who may pass: also where a pool has partitions."""

from __future__ import annotations

import pytest

from backends.partition_line import PartitionLine
from backends.partitions import Partitions
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


def test_a_full_partition_holds_up_its_own_only():
    """The pool has room for others."""
    cache, _ = build_running(("p", 8))
    line = PartitionLine(cache.pool)
    line.is_too_long_for(build_sequence(build_prompt(8), partition="p"), 4)
    assert line.passes_over(build_sequence([1], partition="p"))
    assert not line.passes_over(build_sequence([1], partition="q"))
    assert not line.passes_over(build_sequence([1]))


def test_a_full_pool_holds_up_all_but_those_below_their_floor():
    """What is promised is given at once, whoever came first."""
    cache, _ = build_running(("", 8))
    line = PartitionLine(cache.pool)
    assert not line.passes_over(build_sequence([1], partition="q"))
    line.is_too_long_for(build_sequence(build_prompt(12)), 4)
    assert line.passes_over(build_sequence([1]))
    assert not line.passes_over(build_sequence([1], partition="q"))
    build_computed(cache, build_prompt(16, seed=9), "q", partition="q")
    assert line.passes_over(build_sequence([1], partition="q"))
