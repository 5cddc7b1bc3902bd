"""Filling a cache ahead: it is believed and queued, other replicas hear of it, and no figure of traffic moves."""

from __future__ import annotations

import pytest

from router.core import News
from router.policy import POLICIES
from router.router import Router
from router.settings import RouterSettings
from tests.router.placement_builders import build_fleet, build_prompt

SETTINGS = RouterSettings(learn=False)


def waits(router: Router, worker: str, now: float) -> float:
    """How long a request would wait there."""
    return next(each.wait_seconds for each in router.stats(now).workers if each.worker == worker)


def test_the_home_of_a_prompt_is_where_it_would_be_placed_on_a_quiet_fleet() -> None:
    """The same key and the same ring as `place`."""
    router, fleet = Router(SETTINGS), build_fleet(8)
    for number in range(40):
        prompt = build_prompt((f"text {number}", 6))
        assert router.homes_of(prompt, fleet, 0.0) == (router.peek(prompt, fleet, 0.0).home,)


def test_a_session_has_its_own_home() -> None:
    """Under a policy that keeps sessions together, the home is the session's."""
    router, fleet, prompt = Router(SETTINGS), build_fleet(8), build_prompt(("text", 6))
    told = {"tenant": "a", "policy": "session", "session": "s"}
    assert router.homes_of(prompt, fleet, 0.0, **told) == (router.peek(prompt, fleet, 0.0, **told).home,)
    assert len({router.homes_of(prompt, fleet, 0.0, **{**told, "session": str(n)}) for n in range(20)}) > 1


def test_a_prompt_too_hot_for_one_worker_has_all_its_homes() -> None:
    """The same prompt so often that one worker could not: whoever joins may be one of its homes."""
    router, fleet, prompt = Router(SETTINGS), build_fleet(4), build_prompt(("text", 4), tail_tokens=6000)
    for number in range(400):
        router.place(prompt, fleet, number * 0.02, request_id=str(number))
    homes = router.homes_of(prompt, fleet, 8.0)
    assert len(homes) == len(set(homes)) == router.peek(prompt, fleet, 8.0).homes > 1


def test_nobody_on_the_ring_is_no_home() -> None:
    """An answer, not an exception."""
    assert Router(SETTINGS).homes_of(build_prompt(("text", 4)), build_fleet(0), 0.0) == ()


def test_who_holds_how_much_is_told_in_tokens() -> None:
    """Of those who hold anything; never more than the prompt."""
    router, fleet = Router(SETTINGS), build_fleet(3)
    prompt = build_prompt(("text", 6))
    assert router.warming.holdings(prompt) == {}
    worker = router.place(prompt, fleet, 0.0, request_id="r").worker
    longer = build_prompt(("text", 9))
    assert router.warming.holdings(longer) == {worker: 6 * prompt.block_tokens}
    assert router.warming.held_tokens(longer, worker) == 6 * prompt.block_tokens
    assert router.warming.held_tokens(longer, "nobody") == 0


def test_what_warms_waits_in_the_queue_and_is_believed_when_it_is_there() -> None:
    """The next placement knows of both; when it has ended, only the belief stays."""
    router, fleet, prompt = Router(SETTINGS), build_fleet(2), build_prompt(("text", 50))
    expected = router.warming.seconds(prompt, "worker-1")
    seconds = router.warming.begin("warm", prompt, "worker-1", 0.0)
    assert seconds == pytest.approx(expected)
    assert waits(router, "worker-1", 0.0) == pytest.approx(seconds)
    assert router.warming.waiting("worker-1") == 1
    assert router.warming.holdings(prompt) == {}
    router.warming.end("warm", 0.5)
    router.warming.believe("warmed", prompt, "worker-1", 0.5)
    assert waits(router, "worker-1", 0.5) == 0.0
    assert router.peek(prompt, fleet, 0.5).candidates[1].cached_tokens > 0
    router.check_integrity()


def test_what_was_broken_off_is_not_believed() -> None:
    """Nobody knows how far it came."""
    router, prompt = Router(SETTINGS), build_prompt(("text", 50))
    router.warming.begin("warm", prompt, "worker-1", 0.0)
    router.warming.end("warm", 0.1)
    assert router.warming.holdings(prompt) == {}
    assert router.warming.waiting("worker-1") == 0


@pytest.mark.parametrize("name", POLICIES)
def test_only_policies_that_go_home_have_homes(name: str) -> None:
    """What is brought to a home of the others would be asked for somewhere else."""
    router, fleet = Router(SETTINGS), build_fleet(4)
    homes = {router.homes_of(build_prompt((f"text {number}", 3)), fleet, 0.0, policy=name) for number in range(30)}
    placed = [
        router.place(build_prompt((f"text {number}", 3)), fleet, 0.0, request_id=f"{number}", policy=name).worker
        for number in range(30)
    ]
    assert len(set(placed)) > 1
    if name in ("least_loaded", "round_robin", "random"):
        assert homes == {()}
    else:
        assert {len(each) for each in homes} == {1}
        assert set(placed) <= {home for each in homes for home in each}


def test_who_waits_behind_a_warm_up_is_told_when_that_takes_longer_than_thought() -> None:
    """Its own entry has left the queue by then."""
    router, fleet = Router(SETTINGS), build_fleet(1)
    (worker,) = (view.name for view in fleet.workers)
    seconds = router.warming.begin("warm", build_prompt(("text", 50)), worker, 0.0)
    assert router.warming.waiting(worker, {"warm"}) == 0
    router.place(build_prompt(("other", 3)), fleet, seconds + 1.0, request_id="r")
    assert router.warming.waiting(worker, {"warm"}) == 1


def test_no_figure_of_traffic_moves() -> None:
    """Placements, popularity, utilisation: as before."""
    router, fleet = Router(SETTINGS), build_fleet(2)
    router.place(build_prompt(("other", 3)), fleet, 0.0, request_id="r")
    before = router.stats(1.0)
    router.warming.begin("warm", build_prompt(("text", 50)), "worker-1", 1.0)
    router.warming.end("warm", 1.0)
    router.warming.believe("warmed", build_prompt(("text", 50)), "worker-1", 1.0)
    after = router.stats(1.0)
    for name in ("placements", "placed", "utilisation", "price", "key_blocks_counted", "in_flight", "predictions"):
        assert getattr(after, name) == getattr(before, name), name


def test_other_replicas_hear_of_it() -> None:
    """The queue while it is under way, the blocks when they are there."""
    told: list[News] = []
    one, other, prompt = Router(SETTINGS, told.append), Router(SETTINGS), build_prompt(("text", 50))
    one.warming.begin("warm", prompt, "worker-1", 0.0)
    other.heard(told[0], 0.0)
    assert other.warming.waiting("worker-1") == 1
    one.warming.end("warm", 0.5)
    one.warming.believe("warmed", prompt, "worker-1", 0.5)
    for news in told[2:]:
        other.heard(news, 0.5)
    assert other.warming.holdings(prompt) == one.warming.holdings(prompt) != {}
    assert [news.kind for news in told] == ["placed", "ended", "placed", "ended"]
