"""Homes: a key gets more of them when its load needs it, at once, and loses them late and one by one."""

from __future__ import annotations

from collections import Counter

from router.homes import FULL_SHARE, HOLD_SECONDS, Homes, Work
from router.router import Router
from tests.router.placement_builders import build_fleet, build_prompt, build_router, send
from tests.router.small_engine import Request, Run, SmallFleet

KEY = b"key of a hot prompt"


def load(homes: Homes, workers: float, seconds: float, start: float = 0.0, most: int = 16, **arguments: float) -> float:
    """Ask for KEY ten times a second, for so many workers' work; returns the time after it."""
    for step in range(int(seconds * 10)):
        homes.add(KEY, Work(workers / 10), start + step / 10, most=most, **arguments)
    return start + seconds


def test_an_unknown_key_has_one_home() -> None:
    """As has one that was asked for once."""
    homes = Homes()
    assert homes.count(KEY, 0.0) == 1
    homes.add(KEY, Work(0.5), 0.0, most=8)
    assert homes.count(KEY, 0.0) == 1


def test_the_homes_follow_the_load() -> None:
    """Three workers' work at half a worker for each home: six homes, as long as it lasts."""
    homes = Homes()
    now = load(homes, 3.0, 400.0)
    assert homes.count(KEY, now) == 3.0 / FULL_SHARE
    homes.check_integrity()


def test_homes_come_at_once() -> None:
    """As soon as the load of the last minute is more than one home takes, not after a second look."""
    homes, counts = Homes(), []
    for step in range(300):
        homes.add(KEY, Work(0.2), step / 10, most=16)
        counts.append(homes.count(KEY, step / 10))
    assert counts.index(2) < 200
    assert counts == sorted(counts)


def test_homes_go_late_and_one_by_one() -> None:
    """After the load has gone a home is kept for a while, then they go in steps."""
    homes = Homes()
    now = load(homes, 2.0, 400.0)
    full = homes.count(KEY, now)
    assert homes.count(KEY, now + 0.9 * HOLD_SECONDS) == full
    assert homes.count(KEY, now + 1.1 * HOLD_SECONDS) == full - 1
    assert homes.count(KEY, now + 100 * HOLD_SECONDS) == 1
    now = load(homes, 0.01, 2.5 * HOLD_SECONDS, start=now)
    assert homes.count(KEY, now) < full
    homes.check_integrity()


def test_a_load_that_swings_around_the_limit_does_not_flap() -> None:
    """Ten minutes of five busy and five slack seconds in turn: the second home stays."""
    homes, now, counts = Homes(), 0.0, []
    for round_ in range(60):
        now = load(homes, 0.8 if round_ % 2 else 0.4, 5.0, start=now)
        counts.append(homes.count(KEY, now))
    assert counts == sorted(counts)
    assert counts[-1] == 2


def test_there_are_no_more_homes_than_workers() -> None:
    """However hot the key."""
    homes = Homes()
    now = load(homes, 50.0, 100.0, most=8)
    assert homes.count(KEY, now) == 8


def test_the_turns_of_one_conversation_have_one_home() -> None:
    """Twenty long prompts one after the other, each after the answer to the last: a third of a worker's time."""
    homes, now = Homes(), 0.0
    for _ in range(20):
        homes.add(KEY, Work(5.0), now, most=8)
        assert homes.count(KEY, now) == 1
        now += 15.0


def test_decoding_counts_too() -> None:
    """A hot head with long answers: next to no prefill, and yet too much for one worker."""
    homes = Homes()
    for step in range(2000):
        homes.add(KEY, Work(0.002, 0.1), step / 10, most=8)
    assert homes.count(KEY, 200.0) >= 2


def test_a_replica_that_sees_a_quarter_of_the_traffic_comes_to_the_same_number() -> None:
    """It knows what all place together, and scales up what it sees of the key."""
    alone, one_of_four = Homes(), Homes()
    now = load(alone, 2.0, 400.0, fleet_load=2.0)
    load(one_of_four, 0.5, 400.0, fleet_load=2.0)
    assert abs(alone.count(KEY, now) - one_of_four.count(KEY, now)) <= 1


def test_memory_is_bounded() -> None:
    """A flood of keys pushes out those that are not asked for, and not the hot one."""
    homes = Homes(bound_keys=100)
    now = load(homes, 2.0, 200.0)
    for number in range(1000):
        homes.add(number.to_bytes(16, "little"), Work(0.01), now, most=8)
        homes.add(KEY, Work(0.01), now, most=8)
        assert len(homes) <= 100
    assert homes.count(KEY, now) > 1
    assert homes.spread_keys(now) == 1
    homes.check_integrity()


def ask_again_and_again(router: Router, seconds: float, per_second: int = 90) -> Run:
    """One prompt, cached but for its end, so often that its fixed cost alone is nearly two workers' time."""
    prompt = build_prompt(("hot", 100))
    load = [Request(prompt, at=number / per_second, output_tokens=5) for number in range(int(seconds * per_second))]
    return SmallFleet(router, build_fleet(8), cache_blocks=1000).run(load)


def test_a_prompt_asked_for_all_the_time_gets_more_homes_on_the_ring() -> None:
    """They are the first workers of the ring's walk, share the work, and what goes there counts as at home."""
    router = build_router()
    run = ask_again_and_again(router, 60.0)
    placement = send(router, build_prompt(("hot", 100)), build_fleet(8), now=60.0)
    walk = list(router._members.roster.ring.walk(placement.key))
    homes = router._traffic.homes.count(placement.key, 60.0)
    late = Counter(run.workers[-2000:])
    assert homes >= 2
    assert set(late) <= set(walk[:homes])
    assert len(late) >= 2
    assert max(late.values()) <= 1.25 * 2000 / len(late)
    assert placement.at_home
    assert placement.home in walk[:homes]
    router.check_integrity()


def test_one_long_prompt_to_a_router_that_has_just_started_has_one_home() -> None:
    """200,000 tokens are 25 s of prefill: no load yet."""
    router, fleet, prompt = build_router(), build_fleet(8), build_prompt(("long", 3100))
    for turn in range(3):
        assert send(router, prompt, fleet, now=float(turn)).homes == 1


def test_two_routers_that_saw_the_same_choose_the_same_homes() -> None:
    """No chance in it: B-13, the overflow of a hot key touches the same workers again."""
    first, again = (ask_again_and_again(build_router(), 20.0).workers for _ in range(2))
    assert first == again
