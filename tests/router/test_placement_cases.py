"""Public bug reports about placement, retold as stories: what went wrong elsewhere must go right here.

The numbers (B-01, …) are those of the collection of cases that the project was planned with; each test says the fault.
"""

from __future__ import annotations

import random
from collections import Counter
from math import ceil

import pytest

from router.core import FleetView, WorkerView
from router.policy import POLICIES
from router.router import Router
from tests.router.placement_builders import build_fleet, build_prompt, build_router, fresh_id, send, serve
from tests.router.small_engine import Request, Run, SmallFleet


def place_concurrently(router: Router, fleet: FleetView, prompts: list, at: float = 0.0) -> Counter[str]:
    """All at one moment, none answered yet; returns requests by worker."""
    return Counter(send(router, prompt, fleet, now=at).worker for prompt in prompts)


def drive(router: Router, fleet: FleetView, load: list[Request], clients: int, cache_blocks: int = 4000) -> Run:
    return SmallFleet(router, fleet, cache_blocks).run(load, clients)


def test_b01_a_bound_below_one_does_not_send_everything_home() -> None:
    """200 workers, 40 in flight, a quarter share one key: nobody above max(4, ⌈1.25 · mean⌉)."""
    router, fleet = build_router("chwbl"), build_fleet(200)
    prompts = [build_prompt(("shared", 30) if n % 4 == 0 else (f"own-{n}", 30)) for n in range(40)]
    for number, prompt in enumerate(prompts):
        send(router, prompt, fleet)
        busiest = max(worker.requests_in_flight for worker in router.stats().workers)
        assert busiest <= max(4, ceil(1.25 * (number + 1) / 200))


def test_b01_when_all_are_over_the_bound_the_least_loaded_gets_it() -> None:
    """Not the home: here the only worker with room is off the ring, and everybody on it is over."""
    views = [WorkerView(f"worker-{n}", in_flight=30 + n) for n in range(4)]
    idle = WorkerView("drained-but-last", weight=0, in_flight=0)
    router = build_router("chwbl", chwbl_factor=0.5, chwbl_floor=1)
    placements = {send(router, build_prompt((f"p{n}", 3)), FleetView((*views, idle))).worker for n in range(3)}
    assert placements == {"worker-0"}


def test_bounded_load_holds_at_every_admission() -> None:
    """In flight never exceeds ⌈c · (total + 1) / N⌉, under any mix of arrivals and ends."""
    router, fleet, chance = build_router("chwbl"), build_fleet(6), random.Random(3)
    open_requests: list[str] = []
    for number in range(600):
        if open_requests and chance.random() < 0.4:
            router.cancelled(open_requests.pop(chance.randrange(len(open_requests))), float(number))
            continue
        key = "hot" if chance.random() < 0.5 else f"key-{chance.randrange(50)}"
        placement = send(router, build_prompt((key, 5)), fleet, now=float(number))
        open_requests.append(placement.request_id)
        in_flight = {worker.worker: worker.requests_in_flight for worker in router.stats().workers}
        assert in_flight[placement.worker] <= max(4, ceil(1.25 * len(open_requests) / 6))


@pytest.mark.parametrize("policy", ["homing", "chwbl"])
def test_b02_an_empty_cache_does_not_attract_misses_to_a_busy_worker(policy: str) -> None:
    """W1 is busy with an empty cache, W2 idle with a full one; 50 new prefixes go by load, not by free space."""
    router = build_router(policy)
    full = FleetView((WorkerView("w1", ready=False), WorkerView("w2", cache_blocks=900)))
    for number in range(30):
        serve(router, build_prompt((f"old-{number}", 30)), full)
    both = FleetView((WorkerView("w1"), WorkerView("w2", cache_blocks=900)))
    only_first = frozenset({"w2"})
    for number in range(40):
        send(router, build_prompt((f"busy-{number}", 30)), both, now=100.0, exclude=only_first)
    new = place_concurrently(router, both, [build_prompt((f"new-{n}", 30)) for n in range(50)], at=100.0)
    assert new["w1"] <= ceil(1.25 * 91 / 2) - 40
    assert new["w2"] >= 50 - 17


def test_b08_a_late_end_never_makes_a_worker_look_emptier_than_empty() -> None:
    """An end after the request was given up by age changes nothing: counts are clamped, and −1 never wins."""
    router, fleet = build_router("least_loaded", in_flight_age_seconds=10.0), build_fleet(4)
    late = [send(router, build_prompt((f"p{n}", 3)), fleet).request_id for n in range(8)]
    for number in range(300):
        serve(router, build_prompt((f"q{number}", 3)), fleet, now=100.0)
    for request_id in late:
        router.finished(request_id, 101.0, output_tokens=5)
    assert all(worker.requests_in_flight == 0 for worker in router.stats().workers)
    spread = place_concurrently(router, fleet, [build_prompt((f"r{n}", 3)) for n in range(40)], at=102.0)
    assert set(spread.values()) == {10}


def test_b08_ties_do_not_depend_on_the_order_of_the_list() -> None:
    """The same requests over the same workers in another order go to the same places."""
    names = [f"worker-{n}" for n in range(5)]
    for policy in ("homing", "ring", "chwbl", "least_loaded"):
        places = []
        for order in (names, names[::-1]):
            router = build_router(policy)
            places.append(
                [
                    router.place(build_prompt((f"p{n}", 4)), build_fleet(order), 0.0, request_id=f"r{n}").worker
                    for n in range(20)
                ]
            )
        assert places[0] == places[1], policy


@pytest.mark.parametrize("policy", ["homing", "ring", "chwbl"])
@pytest.mark.parametrize("first_blocks", [0, 1, 40])
def test_b09_a_session_on_an_idle_fleet_stays_on_one_worker(policy: str, first_blocks: int) -> None:
    """20 turns one after the other, short or long: rotating ties would scatter them."""
    router, fleet = build_router(policy), build_fleet(4)
    workers = set()
    for turn in range(20):
        talk = [("system", first_blocks), *[(f"turn-{n}", 1 + n % 3) for n in range(turn + 1)]]
        key = [*talk, (f"tail-{turn}", 1)]
        workers.add(serve(router, build_prompt(*talk, key=key), fleet, now=30.0 * turn).worker)
    assert len(workers) == 1


def test_b09_distinct_keys_on_an_idle_fleet_are_spread() -> None:
    """400 keys over 4 workers: each has 18 to 32 %."""
    router, fleet = build_router(), build_fleet(4)
    counts = Counter(serve(router, build_prompt((f"p{n}", 9)), fleet, now=20.0 * n).worker for n in range(400))
    assert all(0.18 <= number / 400 <= 0.32 for number in counts.values())


def test_b10_a_tiny_match_does_not_outweigh_load() -> None:
    """64 cold prompts at once that share a header of two blocks: nobody above 1.25 times the mean, nobody idle."""
    router, fleet = build_router(), build_fleet(8)
    serve(router, build_prompt(("header", 2), ("first", 30)), fleet)
    prompts = [build_prompt(("header", 2), (f"own-{n}", 30)) for n in range(64)]
    spread = place_concurrently(router, fleet, prompts, at=60.0)
    assert len(spread) == 8
    assert max(spread.values()) <= 1.25 * 64 / 8


def test_b11_users_of_one_agent_are_spread_and_come_back_to_their_worker() -> None:
    """300 users behind one system prompt of 4,000 tokens, 32 at a time on 4 workers: even, and 90 % sticky."""
    router, fleet = build_router(), build_fleet(4)
    load = [
        Request(build_prompt(("agent", 62), *[(f"user-{user}/{turn}", 12) for turn in range(round_ + 1)]))
        for round_ in range(3)
        for user in range(300)
    ]
    run = drive(router, fleet, load, clients=32)
    assert run.requests_max_over_mean(4) <= 1.25
    first, returns = run.workers[:300], run.workers[300:600] + run.workers[600:]
    assert sum(worker == first[n % 300] for n, worker in enumerate(returns)) >= 0.9 * 600


def test_b13_overflow_walks_on_in_a_fixed_order() -> None:
    """A hot key at three times the bound on 8 workers touches ⌈load / bound⌉ + 1 workers, the same ones again."""
    fleet, prompt, touched = build_fleet(8), build_prompt(("hot", 20)), []
    for _ in range(2):
        router = build_router("chwbl", chwbl_floor=8, chwbl_factor=1.0)
        touched.append([worker for worker, _ in place_concurrently(router, fleet, [prompt] * 24).items()])
    assert touched[0] == touched[1]
    assert len(touched[0]) <= ceil(24 / 8) + 1


def test_b13_a_hot_prefix_uses_as_many_workers_as_it_needs_and_no_more() -> None:
    """Under `homing` a prefix of 10,000 tokens, asked for steadily, does not end up cached everywhere."""
    router, fleet = build_router(), build_fleet(16)
    load = [Request(build_prompt(("hot", 156), (f"question-{n}", 2)), at=0.25 * n) for n in range(200)]
    run = SmallFleet(router, fleet, 4000).run(load)
    assert len(run.requests) <= 4
    assert run.hit_rate > 0.9


def test_b23_requests_that_cannot_be_tokenised_are_spread() -> None:
    """100 odd ones at once: within the bound of even shares, each placed."""
    router, fleet = build_router(), build_fleet(4)
    odd = [build_prompt(key=[(f"odd-{n}", 1)], tail_tokens=200) for n in range(100)]
    spread = place_concurrently(router, fleet, odd)
    assert sum(spread.values()) == 100
    assert max(spread.values()) <= 1.25 * 25


def test_b24_pins_are_scoped_by_tenant() -> None:
    """Two tenants send one session id: their keys have nothing to do with each other."""
    router, fleet, prompt = build_router("session"), build_fleet(32), build_prompt(("p", 5))
    keys = {send(router, prompt, fleet, tenant=tenant, session="1").key for tenant in ("a", "b")}
    assert len(keys) == 2


def test_b26_the_same_hint_with_other_heads_goes_to_one_worker() -> None:
    """And without a hint the key comes from the leading blocks, never from chance."""
    router, fleet = build_router("session"), build_fleet(8)
    heads = [build_prompt((f"head-{n}", 5)) for n in range(10)]
    assert len({serve(router, head, fleet, session="pinned").worker for head in heads}) == 1
    assert [router.peek(head, fleet, 9.0).worker for head in heads] == [
        build_router("session").peek(head, fleet, 0.0).worker for head in heads
    ]


def test_a_failed_attempt_is_placed_elsewhere_and_does_not_count_twice() -> None:
    """Three retries, each excluding those before: four workers in all, one request in flight."""
    router, fleet, request_id, tried = build_router(), build_fleet(4), fresh_id(), frozenset()
    for _ in range(4):
        placement = router.place(build_prompt(("p", 9)), fleet, 0.0, request_id=request_id, exclude=tried)
        tried |= {placement.worker}
    assert len(tried) == 4
    assert router.stats().in_flight == 1
    last = router.place(build_prompt(("p", 9)), fleet, 0.0, request_id=request_id, exclude=tried)
    assert (last.worker, router.stats().in_flight) == (None, 0)


def test_g08_replicas_that_never_talked_agree_on_every_home() -> None:
    """Other traffic before, other order of workers: 1,000 new keys have one home."""
    names = [f"pod-{n}" for n in range(6)]
    one, other = build_router(), build_router()
    for number in range(50):
        serve(other, build_prompt((f"other-{number}", 9)), build_fleet(names[::-1]), now=10.0 * number)
    for number in range(1000):
        prompt = build_prompt((f"p{number}", 2))
        mine, theirs = one.peek(prompt, build_fleet(names), 0.0), other.peek(prompt, build_fleet(names[::-1]), 9e3)
        assert (mine.home, mine.worker) == (theirs.home, theirs.worker)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_worker_that_has_just_left_is_passed_over_while_the_ring_still_names_it(policy: str) -> None:
    """Changes are gathered for a moment: prompts of the one that left go to others, under every policy."""
    router = build_router(policy, ring_gather_seconds=0.2)
    prompts = [build_prompt((f"text {number}", 4)) for number in range(40)]
    for prompt in prompts:
        serve(router, prompt, build_fleet(3), now=0.0, session="s")
    for number, prompt in enumerate(prompts):
        placement = serve(router, prompt, build_fleet(2), now=1.0 + number * 0.001, session=f"s{number}")
        assert placement.worker in {"worker-0", "worker-1"}
    assert router.stats().ring_workers == 3
    serve(router, prompts[0], build_fleet(2), now=2.0)
    assert router.stats().ring_workers == 2
