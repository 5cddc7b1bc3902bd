"""Who runs next: budgets, chunks, order, and preemption by recompute."""

from __future__ import annotations

import pytest

from backends.engine_config import EngineConfig
from backends.scheduler import Plan, Scheduler
from backends.sequence import Sequence
from tests.backends.core_builders import build_cache, build_config, build_prompt, build_sequence


class Desk:
    """A scheduler whose steps are computed at once; every sequence goes on for ever."""

    def __init__(self, **changes) -> None:
        self.config: EngineConfig = build_config(**changes)
        self.cache = build_cache(self.config.num_blocks, enabled=self.config.enable_prefix_caching)
        self.scheduler = Scheduler(self.config, self.cache)

    def add(self, name: str, tokens: int, seed: int | None = None, **where) -> Sequence:
        prompt = build_prompt(tokens, seed=sum(name.encode()) if seed is None else seed)
        sequence = build_sequence(prompt, name, **where)
        self.scheduler.add([sequence])
        return sequence

    def plan(self) -> Plan:
        plan = self.scheduler.schedule(now=0.0)
        self.scheduler.check_integrity()
        assert [item.sequence for item in plan.batch.items] == plan.sequences
        return plan

    def step(self) -> dict[str, tuple[int, int]]:
        """Plan, compute, and sample a token where the last one was reached; (start, count) of each sequence."""
        plan = self.plan()
        self.scheduler.commit(plan)
        for item, sequence in zip(plan.batch.items, plan.sequences, strict=True):
            if item.samples:
                sequence.token_ids.append(1)
        return {item.sequence.request_id: (item.start_token, item.token_count) for item in plan.batch.items}

    def names(self) -> tuple[list[str], list[str]]:
        """Running and waiting."""
        scheduler = self.scheduler
        return [s.request_id for s in scheduler.running], [s.request_id for s in scheduler.waiting]


def test_prefill_and_decode_share_a_step():
    """There are no phases: a running sequence gets its one token, a new one its whole prompt."""
    desk = Desk()
    desk.add("old", 5)
    assert desk.step() == {"old": (0, 5)}
    desk.add("new", 9)
    assert desk.step() == {"old": (5, 1), "new": (0, 9)}
    assert desk.step() == {"old": (6, 1), "new": (9, 1)}


def test_a_long_prompt_is_computed_in_chunks():
    """A step hands out max_batched_tokens and no more; only the last chunk samples."""
    desk = Desk(max_batched_tokens=8)
    desk.add("long", 20)
    plan = desk.plan()
    assert not plan.batch.items[0].samples
    desk.scheduler.commit(plan)
    assert desk.step() == {"long": (8, 8)}
    assert desk.plan().batch.items[0].samples


def test_running_sequences_come_before_waiting_ones():
    """A chunked prefill gets what the decodes leave."""
    desk = Desk(max_batched_tokens=8)
    desk.add("a", 4)
    desk.add("b", 4)
    desk.step()
    desk.add("long", 20)
    assert desk.step() == {"a": (4, 1), "b": (4, 1), "long": (0, 6)}
    assert desk.step() == {"a": (5, 1), "b": (5, 1), "long": (6, 6)}


def test_no_more_sequences_run_than_allowed():
    """The next one waits until a place is free."""
    desk = Desk(max_sequences=2)
    first = desk.add("a", 4)
    desk.add("b", 4)
    desk.add("c", 4)
    assert set(desk.step()) == {"a", "b"}
    desk.scheduler.drop(first)
    assert set(desk.step()) == {"b", "c"}


def test_waiting_sequences_are_taken_in_their_order():
    """A small one does not overtake a big one that does not fit yet."""
    desk = Desk(num_blocks=9, watermark_blocks=0)
    desk.add("a", 20)
    desk.step()
    desk.add("big", 16)
    desk.add("small", 2)
    desk.step()
    assert desk.names() == (["a"], ["big", "small"])


def test_a_hit_leaves_only_the_rest_to_compute():
    """The chunk starts after the cached blocks."""
    desk = Desk()
    desk.add("a", 14, seed=1)
    desk.step()
    second = desk.add("b", 14, seed=1)
    assert desk.step()["b"] == (12, 2)
    assert second.cached_tokens == 12


def test_the_watermark_holds_only_beside_running_sequences():
    """Else a request that needs the whole pool would wait for ever."""
    desk = Desk(num_blocks=6, watermark_blocks=1)
    first = desk.add("whole pool", 20)
    assert desk.step() == {"whole pool": (0, 20)}
    desk.scheduler.drop(first)
    desk.add("a", 4)
    desk.step()
    desk.add("b", 15)
    desk.step()
    assert desk.names() == (["a"], ["b"])


def test_the_last_running_sequence_is_preempted_when_blocks_run_out():
    """It goes back to the front of the queue with its output, and its blocks stay cached."""
    desk = Desk(num_blocks=7)
    desk.add("a", 8)
    victim = desk.add("b", 11)
    desk.add("c", 5)
    desk.step()
    assert desk.names() == (["a", "b"], ["c"])
    while not victim.preemptions:
        desk.step()
    assert desk.names() == (["a"], ["b", "c"])
    assert victim.computed_tokens == 0
    assert victim.block_ids == []
    assert len(victim.token_ids) > 11
    assert len(desk.cache.lookup(victim)) >= 2


def test_a_preempted_one_has_waited_for_its_first_turn_only():
    """The queue time ends when it is let in for the first time."""
    desk = Desk()
    sequence = desk.add("a", 5)
    desk.step()
    desk.scheduler.preempt_all()
    desk.scheduler.schedule(now=5.0)
    assert (sequence.preemptions, sequence.times.first_scheduled) == (1, 0.0)


def test_nobody_is_let_in_in_the_step_of_a_preemption():
    """Whoever comes next waits for the next step, though the victim left room."""
    desk = Desk(num_blocks=5, max_sequences=2, scheduling_policy="priority")
    desk.add("a", 8)
    desk.add("b", 7)
    desk.step()
    small = desk.add("small", 2, priority=-1)
    desk.step()
    assert desk.names() == (["a"], ["small", "b"])
    assert small.preemptions == 0
    desk.step()
    assert desk.names() == (["a", "small"], ["b"])


def test_a_victim_is_never_part_of_the_step_it_was_preempted_for():
    """Trap 11: its budget goes to others, because victims are taken from behind those already planned."""
    desk = Desk(num_blocks=8, max_batched_tokens=8)
    for name in ("a", "b", "c"):
        desk.add(name, 7)
    for _ in range(200):
        plan = desk.plan()
        planned = {sequence.request_id for sequence in plan.sequences}
        assert planned <= set(desk.names()[0])
        assert plan.batch.token_count <= 8
        desk.scheduler.commit(plan)
        for item, sequence in zip(plan.batch.items, plan.sequences, strict=True):
            if item.samples and len(sequence.token_ids) < 26:
                sequence.token_ids.append(1)
            elif item.samples:
                desk.scheduler.drop(sequence)
    assert desk.names() == ([], [])


def test_the_oldest_running_sequence_always_gets_on():
    """No livelock: while three fight for blocks, the first one gains a token every step."""
    desk = Desk(num_blocks=8, enable_prefix_caching=False)
    oldest = desk.add("a", 5)
    desk.add("b", 5)
    desk.add("c", 5)
    for step in range(1, 23):
        desk.step()
        assert len(oldest.token_ids) == 5 + step
    assert oldest.preemptions == 0


@pytest.mark.parametrize("when", ["waiting", "prefill", "decode", "preempted"])
def test_a_sequence_may_end_at_any_moment(when):
    """Trap 10: its blocks come back exactly once, wherever it was."""
    desk = Desk(num_blocks=8, max_batched_tokens=8)
    if when == "preempted":
        desk.add("other", 8)
    sequence = desk.add("a", 13)
    states = {
        "waiting": lambda: True,
        "prefill": lambda: sequence.computed_tokens == 8,
        "decode": lambda: sequence.computed_tokens > 13,
        "preempted": lambda: sequence.preemptions > 0,
    }
    while not states[when]():
        desk.step()
    desk.scheduler.drop(sequence)
    desk.cache.pool.check_integrity([other.block_ids for other in desk.scheduler.running])
    assert sequence not in desk.scheduler.running
    assert sequence not in desk.scheduler.waiting
    with pytest.raises(ValueError, match="not in"):
        desk.scheduler.drop(sequence)


def test_with_nothing_to_do_the_plan_is_empty():
    """And nothing is preempted."""
    plan = Desk().plan()
    assert list(plan.batch.items) == plan.sequences == []
    assert plan.preempted == 0
