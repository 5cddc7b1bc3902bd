"""Choosing without numbering everybody: the same winner, reason, home and times as with all numbers, always."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core import FleetView, Placement, Prompt, WorkerView
from router.policy import HOME, LEFT_HOME_CACHED, LEFT_HOME_LOAD, POLICIES
from router.reasons import in_words
from router.router import Router
from router.settings import RouterSettings

BLOCK_TOKENS = 64


def build_prompt(head: int, turns: int, tokens_over: int = 7) -> Prompt:
    """A conversation of one of several heads, so many turns on."""
    chain = [bytes([1, head, place]) + bytes(13) for place in range(4)]
    chain += [bytes([2, head, turn]) + bytes(13) for turn in range(turns)]
    return Prompt(len(chain) * BLOCK_TOKENS + tokens_over, BLOCK_TOKENS, chain, [*chain, bytes([3, head, turns])])


def build_fleet(workers: int, **fields: Any) -> FleetView:
    """Workers with small caches, so that blocks go."""
    return FleetView(tuple(WorkerView(f"w{number}", cache_blocks=40, **fields) for number in range(workers)))


def told(placement: Placement) -> Placement:
    """All but the candidates."""
    return placement._replace(candidates=())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["place", "place", "place", "first", "finish", "cancel", "retry"]),
        st.integers(0, 7),
        st.integers(0, 6),
        st.floats(0.0, 3.0),
    ),
    min_size=5,
    max_size=60,
)
FLEETS = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.sampled_from([None, None, 1, 3]), st.integers(0, 2)),
    min_size=1,
    max_size=5,
)


def _fleet(rows: list[tuple[bool, bool, int | None, int]]) -> FleetView:
    views = [
        WorkerView(f"w{number}", ready=ready or number == 0, draining=draining, max_in_flight=bound, weight=weight)
        for number, (ready, draining, bound, weight) in enumerate(rows)
    ]
    return FleetView(tuple(views))


@given(FLEETS, STEPS, st.sampled_from([None, 0.0, 0.5]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_is_placed_without_numbers_is_placed_as_with_them(
    rows: list[Any], steps: list[Any], slack: float | None, busy: bool
) -> None:
    """Two routers live the same life; only one of them numbers everybody."""
    usual = RouterSettings(ring_slack_seconds=slack, heat_half_life_requests=20.0 if busy else 2000.0)
    routers, fleet, now, flying = (Router(usual), Router(usual)), _fleet(rows), 0.0, []
    for number, (what, head, turns, seconds) in enumerate(steps):
        now += seconds
        if what in ("place", "retry"):
            request_id = flying[-1][0] if what == "retry" and flying else f"r{number}"
            exclude = frozenset({"w0"}) if what == "retry" else frozenset[str]()
            prompt = build_prompt(head % (2 if busy else 8), turns)
            pair = [
                router.place(prompt, fleet, now, request_id=request_id, exclude=exclude, numbered=numbered)
                for router, numbered in zip(routers, (True, False), strict=True)
            ]
            assert told(pair[0]) == told(pair[1])
            flying.append((request_id, prompt.tokens))
        elif flying:
            request_id, tokens = flying.pop(0) if what != "first" else flying[0]
            for router in routers:
                if what == "first":
                    router.first_token(request_id, now)
                elif what == "finish":
                    router.finished(
                        request_id, now, reported_cached_tokens=tokens // 2, prompt_tokens=tokens, output_tokens=40
                    )
                else:
                    router.cancelled(request_id, now)
    assert routers[0].stats() == routers[1].stats()
    for router in routers:
        router.check_integrity()


def test_an_idle_home_needs_no_look_at_anybody_else() -> None:
    """Nobody is numbered, and the words say so."""
    router, fleet, prompt = Router(), build_fleet(4), build_prompt(1, 2)
    for number in range(3):
        placement = router.place(prompt, fleet, 10.0 * number, request_id=f"r{number}", numbered=False)
        router.finished(f"r{number}", 10.0 * number + 1, output_tokens=1)
    assert placement.reason == HOME
    assert placement.candidates == ()
    assert placement.predicted_cached_tokens == 6 * BLOCK_TOKENS
    assert in_words(placement) == (
        f"home: {placement.worker} of the home {placement.worker}; the others were not numbered"
    )


def test_a_holder_is_found_though_nobody_is_numbered() -> None:
    """The home lacks a long prompt that another holds."""
    router, fleet = Router(RouterSettings(learn=False)), build_fleet(4, prefill_tokens_per_second=1000.0)
    prompt = build_prompt(3, 30)
    home = router.place(prompt, fleet, 0.0, request_id="a").worker
    router.finished("a", 1.0)
    away = router.place(prompt, fleet, 2.0, request_id="b", exclude=frozenset({home or ""})).worker
    router.finished("b", 3.0)
    router.forget(home or "")
    placement = router.place(prompt, fleet, 60.0, request_id="c", numbered=False)
    assert (placement.worker, placement.home, placement.reason) == (away, home, LEFT_HOME_CACHED)
    assert placement.candidates == ()


def test_a_long_queue_at_home_sends_a_request_elsewhere() -> None:
    """Several idle workers are equally good: the ring decides, which takes the numbers."""
    router, fleet = Router(RouterSettings(learn=False)), build_fleet(4, prefill_tokens_per_second=1000.0)
    placements = []
    for number in range(6):
        tail = [bytes([9, number, place]) + bytes(13) for place in range(40)]
        chain = [*build_prompt(3, 0).exact_blocks, *tail]
        prompt = Prompt(len(chain) * BLOCK_TOKENS, BLOCK_TOKENS, chain, chain)
        placements.append(router.place(prompt, fleet, 0.01 * number, request_id=f"r{number}", numbered=False))
    assert placements[0].reason == HOME
    assert LEFT_HOME_LOAD in {placement.reason for placement in placements}


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "homing"])
def test_other_policies_number_everybody(policy: str) -> None:
    """They compare something else."""
    router, fleet = Router(RouterSettings(policy=policy)), build_fleet(3)
    assert len(router.place(build_prompt(1, 1), fleet, 0.0, request_id="r", numbered=False).candidates) == 3


def test_a_negative_weight_of_decoding_numbers_everybody() -> None:
    """What a worker loses could be less than its own prefill then."""
    router = Router(RouterSettings(decode_weight=-1.0))
    assert router.place(build_prompt(1, 1), build_fleet(2), 0.0, request_id="r", numbered=False).candidates


def test_a_placement_shown_to_somebody_has_every_number() -> None:
    """`peek` and `place` number everybody unless told otherwise."""
    router, fleet, prompt = Router(), build_fleet(3), build_prompt(1, 1)
    assert len(router.peek(prompt, fleet, 0.0).candidates) == 3
    assert len(router.place(prompt, fleet, 0.0, request_id="r").candidates) == 3
