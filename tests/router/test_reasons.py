"""Reasons in words: one sentence for every reason and policy, with the names and numbers that decided."""

from __future__ import annotations

import pytest

from router.core import FleetView, Placement, WorkerView
from router.policy import POLICIES
from router.reasons import in_words
from router.router import Router
from tests.router.placement_builders import build_fleet, build_prompt, build_router, fresh_id, send, serve


def told(placement: Placement) -> str:
    """The words, which always begin with the reason."""
    words = in_words(placement)
    assert words.startswith(f"{placement.reason}: ")
    return words.removeprefix(f"{placement.reason}: ")


def keep_busy(router: Router, fleet: FleetView, worker: str, requests: int, blocks: int = 60) -> None:
    """So many unknown prompts to one worker, none of them answered."""
    others = frozenset(view.name for view in fleet.workers) - {worker}
    for _ in range(requests):
        send(router, build_prompt((fresh_id("busy"), blocks)), fleet, exclude=others)


def test_at_home_where_nobody_is_better() -> None:
    """Idle workers, an unknown prompt."""
    placement = send(build_router(), build_prompt(("p", 40)), build_fleet(4))
    assert told(placement) == f"{placement.worker} is the prompt's home, and nobody is better"


def test_at_home_within_the_slack() -> None:
    """The home is a little busy: how much worse it is, than whom, and what it may be."""
    router, fleet, prompt = build_router(ring_slack_seconds=2.0), build_fleet(4), build_prompt(("p", 40))
    home = router.peek(prompt, fleet, 0.0).home
    keep_busy(router, fleet, home, 1)
    placement = send(router, prompt, fleet)
    best = min(placement.candidates, key=lambda one: one.score)
    words = told(placement)
    assert words.startswith(f"{home}, the prompt's home, is 0.")
    assert words.endswith(f"s worse than the best, {best.worker}, and may be 2.000 s worse")


def test_left_for_load() -> None:
    """How long the home's queue is, and by how much the other is better."""
    router, fleet, prompt = build_router(), build_fleet(4), build_prompt(("p", 40))
    home = router.peek(prompt, fleet, 0.0).home
    keep_busy(router, fleet, home, 10)
    placement = send(router, prompt, fleet)
    words = told(placement)
    assert words.startswith(f"at the home, {home}, it would wait 5.0")
    assert f"{placement.worker} is " in words
    assert words.endswith("s better, more than the 0.125 s that keep it at home")


def test_left_for_load_says_what_is_worse_at_the_home() -> None:
    """Nobody waits there, but it is slow, or decodes much, or would push out what is in use."""
    prompt = build_prompt(("p", 20))
    home = build_router().peek(prompt, build_fleet(2), 0.0).home
    slow = [WorkerView(view.name, prefill_tokens_per_second=900.0) for view in build_fleet(2).workers]
    fleet = FleetView(tuple(view if view.name == home else WorkerView(view.name) for view in slow))
    assert f"at the home, {home}, its prefill would take 1." in told(send(build_router(), prompt, fleet))

    decoding, fleet = build_router(decode_weight=20.0, ring_slack_seconds=0.0), build_fleet(2)
    decoding.finished(send(decoding, build_prompt(("q", 1)), fleet).request_id, 0.0, output_tokens=400)
    for number in range(3):
        placed = send(
            decoding, build_prompt((f"r{number}", 3)), fleet, exclude=frozenset({"worker-0", "worker-1"} - {home})
        )
        decoding.first_token(placed.request_id, 1.0)
    words = told(send(decoding, prompt, fleet, now=2.0))
    assert f"at the home, {home}, it and the answers in progress would slow each other by " in words

    crowded, fleet = build_router(), build_fleet(2, cache_blocks=60)
    for number in range(60):
        serve(
            crowded,
            build_prompt((f"x{number}", 20)),
            fleet,
            float(number),
            exclude=frozenset({"worker-0", "worker-1"} - {home}),
        )
    assert f"at the home, {home}, it would push out what is still in use" in told(
        send(crowded, prompt, fleet, now=61.0)
    )


def test_left_for_the_cache() -> None:
    """Who holds how much."""
    router, fleet, prompt = build_router(), build_fleet(4), build_prompt(("p", 100))
    home = router.peek(prompt, fleet, 0.0).home
    holder = serve(router, prompt, fleet, exclude=frozenset({home})).worker
    placement = send(router, prompt, fleet, now=60.0)
    assert placement.reason == "left_home:cached"
    assert told(placement).startswith(f"{holder} holds 6400 tokens of the prompt and the home, {home}, 0; {holder} is ")


def test_left_because_the_home_cannot_serve() -> None:
    """Why it cannot, and who stands in."""
    router, prompt = build_router(), build_prompt(("p", 9))
    home = router.peek(prompt, build_fleet(3), 0.0).home
    fleet = FleetView(tuple(WorkerView(f"worker-{n}", ready=f"worker-{n}" != home) for n in range(3)))
    placement = send(router, prompt, fleet)
    assert told(placement) == f"the home, {home}, cannot take it (not_ready); {placement.worker} stands in"


def test_nobody_on_the_ring_and_nobody_at_all() -> None:
    """Weight 0 everywhere; no worker ready; no workers."""
    only = FleetView((WorkerView("spare", weight=0),))
    assert told(send(build_router(), build_prompt(("p", 3)), only)) == "nobody is on the ring, and spare can take it"
    down = send(build_router(), build_prompt(("p", 3)), build_fleet(6, ready=False))
    assert told(down).startswith("nobody can take it: worker-0 (not_ready), worker-1 (not_ready), ")
    assert told(down).endswith(" and 2 more")
    assert told(send(build_router(), build_prompt(("p", 3)), FleetView(()))) == "the model has no workers"


def test_a_home_that_has_just_left_is_named() -> None:
    """The ring is laid anew a moment later."""
    placement = send(build_router(), build_prompt(("p", 3)), build_fleet(2))
    left = placement._replace(home="worker-9", reason="no_home")
    assert told(left).startswith("the home, worker-9, is not among the workers")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("least_loaded", "has the fewest requests in flight, 0"),
        ("round_robin", "it was worker-0's turn"),
        ("random", "was drawn"),
        ("chwbl", "the prompt's home, has room: 0 requests in flight"),
        ("session", "is the prompt's home, whatever its load"),
    ],
)
def test_policies_say_what_they_went_by(policy: str, words: str) -> None:
    """Requests, turns and chance are called so."""
    assert words in told(send(build_router(policy), build_prompt(("p", 3)), build_fleet(2)))


def test_a_bounded_ring_tells_both_counts() -> None:
    """The home is over its bound."""
    router, fleet, prompt = build_router("chwbl", chwbl_floor=1), build_fleet(2), build_prompt(("p", 3))
    home = router.peek(prompt, fleet, 0.0).home
    keep_busy(router, fleet, home, 6)
    placement = send(router, prompt, fleet)
    words = told(placement)
    assert words == f"at the home, {home}, there are 6 requests in flight; at {placement.worker} there are 0"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_placement_can_be_told(policy: str) -> None:
    """Whatever the policy and the load."""
    router, fleet = build_router(policy), build_fleet(3)
    for number in range(60):
        told(send(router, build_prompt((f"p-{number % 7}", 30)), fleet, now=number / 20, session=f"{number % 5}"))
