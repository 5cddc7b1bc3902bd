"""The policies: who is chosen and with which reason, each on a fleet small enough to work out by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from router.core import FleetView, WorkerView
from router.policy import POLICIES, REASONS
from tests.router.placement_builders import build_fleet, build_prompt, build_router, fresh_id, send, serve


def build_busy_fleet(*in_flight: int) -> FleetView:
    """Workers with so many requests in flight each."""
    return FleetView(tuple(WorkerView(f"worker-{n}", in_flight=busy) for n, busy in enumerate(in_flight)))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_places_names_its_reason_and_numbers_every_candidate(policy: str) -> None:
    """Whatever the policy: one of the workers, one of the reasons, all the numbers."""
    placement = send(build_router(policy), build_prompt(("prompt", 5)), build_fleet(3))
    assert placement.worker in {"worker-0", "worker-1", "worker-2"}
    assert placement.reason in REASONS
    assert placement.policy == policy
    assert [candidate.worker for candidate in placement.candidates] == ["worker-0", "worker-1", "worker-2"]
    assert all(candidate.own_seconds > 0 for candidate in placement.candidates)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_chooses_a_worker_that_may_not_serve(policy: str) -> None:
    """Not ready, draining, full, excluded: never, and nobody left means nobody."""
    workers = (
        WorkerView("not-ready", ready=False),
        WorkerView("draining", draining=True),
        WorkerView("full", in_flight=4, max_in_flight=4),
        WorkerView("failed"),
        WorkerView("good"),
    )
    router, failed = build_router(policy), frozenset({"failed"})
    for number in range(30):
        prompt, session = build_prompt((f"p{number}", 3)), f"session-{number}"
        placement = send(router, prompt, FleetView(workers), exclude=failed, session=session)
        assert placement.worker == "good"
    reasons = {candidate.worker: candidate.inadmissible_because for candidate in placement.candidates}
    assert reasons == {
        "not-ready": "not_ready",
        "draining": "draining",
        "full": "full",
        "failed": "excluded",
        "good": None,
    }
    nobody = send(router, build_prompt(("p", 3)), FleetView(workers[:4]), exclude=failed)
    assert (nobody.worker, nobody.reason, nobody.at_home) == (None, "no_worker", False)
    router.check_integrity()


def test_homing_goes_home_while_nothing_speaks_against_it() -> None:
    """Idle workers, unknown prompts: every key has its home, and gets it."""
    router, fleet = build_router(), build_fleet(4)
    for number in range(40):
        placement = serve(router, build_prompt((f"prompt-{number}", 20)), fleet, now=10.0 * number)
        assert (placement.reason, placement.worker) == ("home", placement.home)


def test_homing_leaves_home_for_a_worker_that_holds_more_of_it() -> None:
    """A long prompt that another worker served before goes back there, with that reason."""
    router, fleet = build_router(), build_fleet(4)
    prompt = build_prompt(("long", 200))
    home = router.peek(prompt, fleet, 0.0).home
    elsewhere = serve(router, prompt, fleet, exclude=frozenset({home}))
    again = send(router, prompt, fleet, now=100.0)
    assert (again.worker, again.reason) == (elsewhere.worker, "left_home:cached")
    assert again.predicted_cached_tokens == 200 * 64


def test_homing_stays_home_for_a_difference_below_the_slack() -> None:
    """Ten blocks held elsewhere are less than the time to prefill 1,000 tokens: not worth leaving for."""
    router, fleet = build_router(), build_fleet(4)
    prompt = build_prompt(("short", 10))
    home = router.peek(prompt, fleet, 0.0).home
    serve(router, prompt, fleet, exclude=frozenset({home}))
    assert send(router, prompt, fleet, now=100.0).reason == "home"


def test_homing_leaves_a_home_with_a_queue() -> None:
    """When the home is seconds behind, somebody else is sooner."""
    router, fleet = build_router(), build_fleet(4)
    first = send(router, build_prompt(("huge", 1000)), fleet)
    other = next(
        prompt
        for prompt in (build_prompt((f"p{number}", 5)) for number in range(100))
        if router.peek(prompt, fleet, 0.1).home == first.worker
    )
    placement = send(router, other, fleet, now=0.1)
    assert placement.worker != first.worker
    assert placement.reason == "left_home:load"


def test_homing_says_that_the_home_could_not_serve_and_lets_the_next_on_the_ring_stand_in() -> None:
    """All replicas find the same stand-in, and it stays the same from turn to turn."""
    prompt = build_prompt(("prompt", 30))
    router, other_router = build_router(), build_router()
    home = router.peek(prompt, build_fleet(6), 0.0).home
    crippled = FleetView(tuple(WorkerView(f"worker-{n}", ready=f"worker-{n}" != home) for n in range(6)))
    placements = [serve(one, prompt, crippled, now=now) for one in (router, other_router) for now in (0.0, 50.0)]
    assert {placement.reason for placement in placements} == {"left_home:unavailable"}
    assert len({placement.worker for placement in placements}) == 1
    assert placements[0].home == home


def test_the_slack_may_be_set_in_seconds() -> None:
    """A wide slack keeps a request at a home with a queue; the default one does not."""
    fleet, prompts = build_fleet(2), [build_prompt((f"p{number}", 40)) for number in range(40)]
    patient, default = build_router(ring_slack_seconds=1000.0), build_router()
    assert {send(patient, prompt, fleet).reason for prompt in prompts} == {"home"}
    assert "left_home:load" in {send(default, prompt, fleet).reason for prompt in prompts}


def test_a_fleet_without_anybody_on_the_ring_still_serves() -> None:
    """All weights 0: nobody is home, the best serves, and the reason says so."""
    placement = send(build_router(), build_prompt(("p", 3)), build_fleet(3, weight=0))
    assert (placement.home, placement.reason) == (None, "no_home")
    assert placement.worker is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_weight_zero_gets_no_keys_while_others_can_serve(policy: str) -> None:
    """B-18: drained by weight; it is the last resort, and then it serves."""
    drained, normal = WorkerView("drained", weight=0), WorkerView("normal")
    router = build_router(policy)
    for number in range(20):
        placement = send(router, build_prompt((f"p{number}", 30)), FleetView((drained, normal)), session=f"s{number}")
        assert placement.worker == "normal"
    assert placement.candidates[0].inadmissible_because == "weight_0"
    last_resort = FleetView((drained, WorkerView("normal", ready=False)))
    assert send(router, build_prompt(("p", 3)), last_resort).worker == "drained"


def test_the_strict_ring_waits_half_a_second_for_home_and_no_longer() -> None:
    """`ring` leaves home only when another first token would come more than 0.5 s sooner."""
    router, fleet = build_router("ring"), build_fleet(3)
    prompt = build_prompt(("prompt", 10))
    home = router.peek(prompt, fleet, 0.0).home
    others = frozenset({"worker-0", "worker-1", "worker-2"} - {home})
    send(router, build_prompt(("a", 45)), fleet, exclude=others)
    assert router.peek(prompt, fleet, 0.0).reason == "home", "0.38 s of work ahead"
    send(router, build_prompt(("b", 45)), fleet, exclude=others)
    left = router.peek(prompt, fleet, 0.0)
    assert (left.reason, left.worker != home) == ("left_home:load", True)
    assert left.candidates[0].score == left.candidates[0].wait_seconds + left.candidates[0].own_seconds


def test_chwbl_walks_on_to_the_next_with_room() -> None:
    """The home is full at its bound: the next on the ring gets it, always the same one."""
    router, prompt = build_router("chwbl", chwbl_floor=2), build_prompt(("hot", 3))
    fleet = build_fleet(8)
    workers = [send(router, prompt, fleet).worker for _ in range(6)]
    assert workers[0] == workers[1] != workers[2] == workers[3] != workers[4]


def test_session_pins_to_the_tenants_session() -> None:
    """B-24: two tenants with one session id have independent workers, and each stays on its own."""
    router, fleet = build_router("session"), build_fleet(16)
    pins = {
        tenant: {
            serve(router, build_prompt((f"{tenant}-{turn}", 9)), fleet, tenant=tenant, session="1").worker
            for turn in range(5)
        }
        for tenant in ("a", "b", "c", "d")
    }
    assert all(len(workers) == 1 for workers in pins.values())
    assert len(set().union(*pins.values())) > 1
    prompt = build_prompt(("x", 1))
    one, other = (router.peek(prompt, fleet, 0.0, tenant=t, session=s).key for t, s in (("ab", "c"), ("a", "bc")))
    assert one != other, "tenant and session are not simply joined"


def test_session_without_a_session_uses_the_prompts_key() -> None:
    """No hint: derived from the prompt, never random."""
    router, fleet, prompt = build_router("session"), build_fleet(8), build_prompt(("p", 4))
    assert {send(router, prompt, fleet).worker for _ in range(5)} == {router.peek(prompt, fleet, 0.0).home}


def test_least_loaded_takes_the_fewest_in_flight_of_either_count() -> None:
    """What the gateway counts (other paths too) and what this router placed: the larger of both."""
    router, prompt = build_router("least_loaded"), build_prompt(("p", 3))
    fleet = build_busy_fleet(5, 1, 3)
    assert [send(router, prompt, fleet).worker for _ in range(2)] == ["worker-1", "worker-1"]
    assert [candidate.score for candidate in router.peek(prompt, fleet, 0.0).candidates] == [5, 2, 3]


def test_round_robin_takes_turns_by_name_whoever_else_is_placed_in_between() -> None:
    """The turns of one policy do not depend on the traffic of another."""
    router, fleet, prompt = build_router("round_robin"), build_fleet(["b", "a", "c"]), build_prompt(("p", 3))
    seen = []
    for _ in range(6):
        seen.append(send(router, prompt, fleet).worker)
        send(router, prompt, fleet, policy="homing")
    assert seen == ["a", "b", "c", "a", "b", "c"]


def test_random_is_even_and_repeats_under_its_seed() -> None:
    """Deterministic by a seeded counter; another seed gives other choices."""
    fleet, prompt = build_fleet(4), build_prompt(("p", 3))

    def choices(seed: int) -> list[str | None]:
        router = build_router("random", seed=seed)
        return [send(router, prompt, fleet).worker for _ in range(400)]

    assert choices(1) == choices(1) != choices(-2)
    assert all(70 <= number <= 130 for number in Counter(choices(1)).values())


def test_ties_go_by_least_own_work_and_then_by_the_ring() -> None:
    """B-08: never by the order in which workers happen to be listed."""
    prompt, names = build_prompt(("p", 3)), [f"worker-{number}" for number in range(5)]
    chosen = set()
    for order in (names, names[::-1], names[2:] + names[:2]):
        router = build_router(ring_slack_seconds=-1.0)
        chosen.add(send(router, prompt, build_fleet(order)).worker)
    assert len(chosen) == 1
    assert chosen == {build_router().peek(prompt, build_fleet(names), 0.0).home}


def test_an_unknown_policy_is_refused_with_a_suggestion() -> None:
    """At construction and at each request, before anything has changed."""
    with pytest.raises(ValueError, match="did you mean 'homing'"):
        build_router("homin")
    router, fleet, request_id = build_router(), build_fleet(2), fresh_id()
    router.place(build_prompt(("p", 3)), fleet, 0.0, request_id=request_id)
    with pytest.raises(ValueError, match="there are homing, ring"):
        router.place(build_prompt(("p", 3)), fleet, 0.0, request_id=request_id, policy="zzz")
    assert router.stats().in_flight == 1


def test_two_workers_of_one_name_are_refused() -> None:
    """Names are identities: requests and beliefs of two would be mixed up."""
    with pytest.raises(ValueError, match="same name"):
        send(build_router(), build_prompt(("p", 3)), build_fleet(["a", "a"]))
