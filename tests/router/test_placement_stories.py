"""More public bug reports about placement, those that need a longer story: leaks, stale affinity, retries, replicas.

The numbers (B-05, …) are those of the collection of cases that the project was planned with; each test says the fault.
"""

from __future__ import annotations

from collections import Counter
from math import ceil

import pytest

from router.core import FleetView, WorkerView
from router.router import Router
from tests.router.placement_builders import build_fleet, build_prompt, build_router, fresh_id, send, serve
from tests.router.small_engine import Request, SmallFleet


def in_flight(router: Router) -> list[int]:
    return [worker.requests_in_flight for worker in router.stats().workers]


@pytest.mark.parametrize("policy", ["homing", "ring", "chwbl", "least_loaded"])
def test_b04_every_request_counts_whatever_its_prompt(policy: str) -> None:
    """64 prompts without a full block and with one key, as a short embedding has: no worker gets them all.

    Policies that count requests keep to their bound, those that count seconds to the time that they wait for home.
    """
    router, fleet = build_router(policy), build_fleet(8)
    placements = [send(router, build_prompt(key=[("shared", 1)], tail_tokens=40), fleet) for _ in range(64)]
    assert sum(in_flight(router)) == 64
    if policy in {"chwbl", "least_loaded"}:
        assert max(in_flight(router)) <= ceil(1.25 * 65 / 8)
    waits = [worker.wait_seconds for worker in router.stats().workers]
    if policy in {"homing", "ring"}:
        assert max(waits) - min(waits) <= placements[-1].slack_seconds + 2 * placements[0].predicted_seconds


def test_b05_a_thousand_clients_that_leave_leave_nothing_behind() -> None:
    """500 before the first token, 500 after it; then nothing is in flight, nobody waits, and new keys are spread."""
    router, fleet = build_router(), build_fleet(4)
    for number in range(1000):
        placement = send(router, build_prompt((f"p{number}", 20)), fleet, now=number / 100)
        if number % 2:
            router.first_token(placement.request_id, number / 100 + 0.2)
        router.cancelled(placement.request_id, number / 100 + 0.3)
        if number % 3 == 0:
            router.cancelled(placement.request_id, number / 100 + 0.4)  # told twice
    assert in_flight(router) == [0] * 4
    assert all(not worker.waiting_requests and not worker.context_tokens for worker in router.stats().workers)
    spread = Counter(send(router, build_prompt((f"q{n}", 20)), fleet, now=20.0).worker for n in range(100))
    assert max(spread.values()) <= 1.25 * 25
    router.check_integrity()


def sessions_at_home(router: Router, fleet: FleetView, worker: str, sessions: int) -> list[str]:
    """Names of conversations whose home is `worker`."""
    names = (f"session-{number}" for number in range(100_000))
    at_home = (name for name in names if router.peek(build_prompt((name, 20)), fleet, 0.0).home == worker)
    return [next(at_home) for _ in range(sessions)]


@pytest.mark.parametrize("told_blocks", [64, 400, None])
@pytest.mark.parametrize("seconds_between_turns", [1.2, 3.0])
def test_b14_a_worker_that_cannot_hold_its_sessions_gives_some_away_for_good(
    told_blocks: int | None, seconds_between_turns: float
) -> None:
    """12 sessions of one home with room for three, busy or idle, its size told or believed far too large.

    Others have room that was never used: sessions move there, hit, and stay.
    """
    router, fleet = build_router(), build_fleet(4, cache_blocks=told_blocks)
    names = sessions_at_home(router, fleet, "worker-0", 12)
    load = [
        Request(
            build_prompt((name, 18), (f"{name}-{turn}", 1)),
            at=seconds_between_turns * (turn + place / 12),
            output_tokens=2,
        )
        for turn in range(60)
        for place, name in enumerate(names)
    ]
    run = SmallFleet(router, fleet, cache_blocks=64).run(load)
    late = range(360, 720)
    assert len({run.workers[n] for n in late}) == 4
    assert sum(run.cached[n] > 0 for n in late) >= 0.7 * len(late)
    assert sum(run.workers[n] != run.workers[n - 12] for n in late) <= 0.05 * len(late)


def test_b27_the_policy_says_what_wins_over_what() -> None:
    """A session pinned to one worker, a prefix of 3,000 tokens held by another: each policy keeps to its own order."""
    fleet, prompt = build_fleet(8), build_prompt(("prefix", 47))
    routers = {policy: build_router(policy) for policy in ("homing", "session")}
    pinned = routers["session"].peek(prompt, fleet, 0.0, session="mine", tenant="a").home
    for router in routers.values():
        holder = serve(router, prompt, fleet, exclude=frozenset({pinned or ""})).worker
    told = {
        policy: {
            (one.worker, one.reason)
            for one in (router.peek(prompt, fleet, 60.0, session="mine", tenant="a") for _ in range(10))
        }
        for policy, router in routers.items()
    }
    assert told["session"] == {(pinned, "home")}
    ((worker, reason),) = told["homing"]
    assert worker != pinned
    assert worker == holder or reason == "home"


def test_g10_bounds_of_replicas_that_share_nothing_add_up_to_one_bound_and_three_floors() -> None:
    """3 gateways, one hot key, 24 workers: nobody above 1.25 · mean + 3 · floor; the floor is each replica's own."""
    routers, fleet, prompt = [build_router("chwbl", chwbl_floor=4) for _ in range(3)], build_fleet(24), ("hot", 20)
    for number in range(240):
        send(routers[number % 3], build_prompt(prompt), fleet)
    together = [sum(counts) for counts in zip(*(in_flight(router) for router in routers), strict=True)]
    assert sum(together) == 240
    assert max(together) <= max(1.25 * 240 / 24 + 4, 3 * 4)


def test_g10_replicas_alone_spread_a_hot_key_over_the_same_workers() -> None:
    """Under `homing`, without news: each finds the same home and the same next ones for what is too much for it."""
    routers, fleet = [build_router() for _ in range(3)], build_fleet(24)
    chosen = [Counter[str | None](), Counter[str | None](), Counter[str | None]()]
    for number in range(90):
        placement = send(routers[number % 3], build_prompt(("hot", 20)), fleet)
        chosen[number % 3][placement.worker] += 1
    assert chosen[0] == chosen[1] == chosen[2]


def test_a_retry_that_lands_elsewhere_is_known_to_be_held_there() -> None:
    """The first worker refused: the next turn is looked for where the answer came from, not where it was first sent."""
    router, fleet, request_id = build_router(), build_fleet(4), fresh_id()
    turn = build_prompt(("talk", 120))
    first = router.place(turn, fleet, 0.0, request_id=request_id)
    second = router.place(turn, fleet, 0.1, request_id=request_id, exclude=frozenset({first.worker or ""}))
    router.first_token(request_id, 2.0)
    router.finished(request_id, 3.0, reported_cached_tokens=0, prompt_tokens=turn.tokens, output_tokens=5)
    router.forget(first.worker or "")
    following = send(router, build_prompt(("talk", 130)), fleet, now=10.0)
    assert (following.worker, following.predicted_cached_tokens) == (second.worker, 120 * 64)


def test_a_restarted_worker_is_believed_empty_at_once_and_keeps_its_keys() -> None:
    """G-18: same name, empty cache: its keys do not move, and nothing is predicted there."""
    router, fleet, talk = build_router(), build_fleet(4), build_prompt(("talk", 120))
    home = serve(router, talk, fleet).worker or ""
    before = {n: router.peek(build_prompt((f"p{n}", 2)), fleet, 5.0).home for n in range(200)}
    router.forget(home)
    again = router.peek(talk, fleet, 5.0)
    assert (again.worker, again.reason, again.predicted_cached_tokens) == (home, "home", 0)
    assert before == {n: router.peek(build_prompt((f"p{n}", 2)), fleet, 5.0).home for n in range(200)}


def test_a_worker_that_restarts_unheard_is_found_out_by_its_answers() -> None:
    """Nobody told: after a few answers without a hit nothing is believed of it any more."""
    router, fleet = (
        build_router(),
        FleetView((WorkerView("w1", cache_blocks=5000), WorkerView("w2", cache_blocks=5000))),
    )
    talks = [build_prompt((f"talk-{n}", 40)) for n in range(30)]
    for talk in talks:
        serve(router, talk, fleet)
    for talk in talks[:20]:
        placement = send(router, talk, fleet, now=100.0)
        router.finished(placement.request_id, 101.0, reported_cached_tokens=0, prompt_tokens=talk.tokens)
    stats = {worker.worker: worker.directory_blocks for worker in router.stats().workers}
    assert sum(stats.values()) < 20 * 40
