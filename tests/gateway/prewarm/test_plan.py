"""Which prompts a worker is given first, and which are not worth it."""

from __future__ import annotations

import asyncio

from gateway.prewarm.plan import LOOKS_AT_ONCE, Gain, Plan, joiner_gain, leaver_gain
from tests.gateway.prewarm.prewarm_builders import build_kept

PEERS = {"a", "b"}


def build_plan(gains):
    """A plan over kept prompts with these gains, which may be changed meanwhile."""
    found = [(kept, Gain(tokens, "a")) for kept, tokens in gains]
    now = {id(kept): tokens for kept, tokens in gains}
    return Plan(found, lambda kept: Gain(now[id(kept)], "a"), 0.0), now


async def taken(plan):
    order = []
    while (step := await plan.next()) is not None:
        order.append(step[0])
    return order


async def test_the_most_tokens_for_the_most_who_will_ask_come_first():
    """Heat times tokens."""
    small, large, hot = build_kept(), build_kept(), build_kept(heat=10.0)
    plan, _ = build_plan([(small, 100), (large, 500), (hot, 60)])
    assert [id(kept) for kept in await taken(plan)] == [id(kept) for kept in (hot, large, small)]


async def test_what_was_brought_with_another_is_not_brought_again():
    """Two prompts with one beginning: after the first, the second lacks less, and another comes before it."""
    first, second, third = build_kept(), build_kept(), build_kept()
    plan, now = build_plan([(first, 900), (second, 800), (third, 300)])
    assert (await plan.next())[0] is first
    now[id(second)] = 100
    assert (await plan.next())[0] is third
    kept, gain = await plan.next()
    assert (kept, gain.tokens) == (second, 100)
    assert (await plan.next()) is None


async def test_what_brings_nothing_any_more_is_passed_over():
    """It was asked by somebody meanwhile, or moved."""
    first, second = build_kept(), build_kept()
    plan, now = build_plan([(first, 900), (second, 800)])
    now[id(first)] = 0
    assert [id(kept) for kept in await taken(plan)] == [id(second)]


async def test_what_was_interrupted_comes_again():
    """With what it still lacks."""
    first, second = build_kept(), build_kept()
    plan, now = build_plan([(first, 900), (second, 100)])
    assert (await plan.next())[0] is first
    now[id(first)] = 500
    plan.again(first)
    assert len(plan) == 2
    assert (await plan.next())[0] is first


def test_a_joiner_gains_what_another_holds_and_it_does_not():
    """The source is who holds most, of those who can still give."""
    kept = build_kept(("text", 10))
    assert joiner_gain({"a": 640, "b": 320, "gone": 999}, "new", PEERS, kept, lost=False) == Gain(640, "a")
    assert joiner_gain({"a": 640, "new": 600}, "new", PEERS, kept, lost=False) == Gain(40, "a")
    assert joiner_gain({"a": 640, "new": 640}, "new", PEERS, kept, lost=False).tokens == 0


def test_what_nobody_holds_is_brought_only_to_a_worker_that_lost_it():
    """A newcomer is not filled with what was driven out everywhere for being cold."""
    kept = build_kept(("text", 10))
    assert joiner_gain({}, "new", PEERS, kept, lost=False) == Gain(0, None)
    assert joiner_gain({}, "new", PEERS, kept, lost=True) == Gain(kept.tokens, None)
    assert joiner_gain({"a": 64}, "new", PEERS, kept, lost=True) == Gain(kept.tokens, "a")


def test_only_what_would_be_lost_with_a_leaver_moves():
    """What a worker that stays holds as well needs no move."""
    assert leaver_gain({"old": 640, "a": 64}, "old", "a", PEERS) == Gain(576, "old")
    assert leaver_gain({"old": 640, "b": 640}, "old", "a", PEERS).tokens == 0
    assert leaver_gain({"b": 640}, "old", "a", PEERS).tokens == 0
    assert leaver_gain({"old": 640, "leaving too": 640}, "old", "a", PEERS) == Gain(640, "old")


async def test_a_long_plan_that_brings_nothing_any_more_does_not_hold_the_loop_up():
    """Others get their turn while it is thrown away."""
    prompts = [(build_kept(), 100) for _ in range(10 * LOOKS_AT_ONCE)]
    plan, now = build_plan(prompts)
    now.update(dict.fromkeys(now, 0))
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    assert await plan.next() is None
    counting.cancel()
    assert turns >= 9
