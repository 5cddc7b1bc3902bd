"""A router apart from its replicas: the workers' own queues stand for their news, and homes count for more."""

from __future__ import annotations

import pytest

from router.apart import OTHERS_LOAD, REST_WEIGHT, PrefillSizes
from router.core import FleetView, Placement, Prompt, WorkerView
from router.ring import Ring
from router.router import Router

NAMES = ("w1", "w2", "w3", "w4")
BLOCKS = [bytes([number]) * 16 for number in range(1, 33)]
PROMPT = Prompt(32 * 64, 64, BLOCKS, BLOCKS)
HOME = Ring(dict.fromkeys(NAMES, 1)).home(BLOCKS[0])


def build_fleet(**waiting: int) -> FleetView:
    """Four workers, so many waiting at each by its own word."""
    views = [
        WorkerView(name, waiting=waiting.get(name, 0), prefill_tokens_per_second=1024, prefill_fixed_seconds=0.0)
        for name in NAMES
    ]
    return FleetView(tuple(views))


def build_router(apart_from: int) -> Router:
    """A router that has placed two prompts of two seconds each, which have ended."""
    router = Router()
    router.apart_from = apart_from
    for number in range(2):
        other = [bytes([100 + number]) + block[1:] for block in BLOCKS]
        router.place(Prompt(2048, 64, other, other), build_fleet(), 0.0, request_id=str(number))
        router.cancelled(str(number), 0.0)
    return router


def waits(placement: Placement) -> dict[str, float]:
    return {each.worker: each.wait_seconds for each in placement.candidates}


def test_requests_nobody_told_of_are_waited_for():
    """Each takes a mean prefill, and where somebody waits another is being done."""
    found = waits(build_router(3).peek(PROMPT, build_fleet(w1=3), 0.0))
    assert found["w1"] == pytest.approx(3 * 2.0 + REST_WEIGHT * 1.0)
    assert found["w2"] == 0.0


def test_own_requests_are_not_counted_twice():
    """Of three that wait at a worker one is ours: two are the others'."""
    router = build_router(3)
    placed = router.place(PROMPT, build_fleet(), 0.0, request_id="mine")
    worker = placed.worker or ""
    found = waits(router.peek(PROMPT, build_fleet(**{worker: 3}), 0.0))
    assert found[worker] == pytest.approx(2.0 + 2 * 2.0 + REST_WEIGHT * 1.0)


def test_together_with_its_replicas_a_router_goes_by_the_news_alone():
    """A worker's own word comes late, and news is exact."""
    found = waits(build_router(0).peek(PROMPT, build_fleet(w1=3), 0.0))
    assert found["w1"] == 0.0


def test_a_home_is_kept_to_while_the_queues_are_alike():
    """The others send the same prompts there: somewhere else that looks a little better is not."""
    home = HOME or ""
    assert build_router(3).peek(PROMPT, build_fleet(**dict.fromkeys(NAMES, 1)), 0.0).worker == home
    some_more = build_fleet(**{**dict.fromkeys(NAMES, 1), home: 2})
    assert build_router(3).peek(PROMPT, some_more, 0.0).worker == home


def test_a_home_with_a_long_queue_is_left():
    """Its worker's own word is believed."""
    assert build_router(3).peek(PROMPT, build_fleet(**{HOME or "": 30}), 0.0).worker != HOME


def test_the_load_of_the_others_is_taken_to_be_like_ones_own():
    """Four replicas: the price of prefill is more than this one's traffic makes it."""
    alone, apart = build_router(0).stats(1.0), build_router(3).stats(1.0)
    assert apart.utilisation == pytest.approx(min(0.99, (1 + 3 * OTHERS_LOAD) * alone.utilisation))
    assert apart.price >= alone.price


def test_the_mean_rest_of_a_prefill_is_longer_where_prefills_differ():
    """Long ones are found more often than short ones."""
    same, mixed = PrefillSizes(), PrefillSizes()
    for number in range(200):
        same.observe(1.0)
        mixed.observe(0.1 if number % 10 else 9.1)
    assert same.rest_seconds == pytest.approx(0.5)
    assert mixed.mean_seconds == pytest.approx(1.0, rel=0.3)
    assert mixed.rest_seconds > 2.5
    assert PrefillSizes().rest_seconds == 0.0
