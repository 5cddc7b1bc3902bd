"""Crowding: a worker that gives up blocks much younger than what others keep, and what that costs it."""

from __future__ import annotations

from router.crowding import LOOK_EVERY, YOUNGER, Crowding
from router.directory import Directory
from router.worker_state import WorkerState
from tests.router.placement_builders import build_chain, build_fleet, build_prompt, build_router, serve


def build_states(*sizes: int) -> list[WorkerState]:
    """Workers with caches of so many blocks."""
    states = [WorkerState(f"worker-{number}") for number in range(len(sizes))]
    for state, blocks in zip(states, sizes, strict=True):
        state.directory.resize(blocks)
    return states


def use(crowding: Crowding, states: list[WorkerState], worker: int, now: float, blocks: int = 10) -> None:
    """A new chain at one worker."""
    states[worker].expect(f"{worker}-{now}", build_chain((f"chain-{worker}-{now}", blocks)), now)
    crowding.look(states, now)


def test_a_directory_tells_when_its_oldest_end_was_used() -> None:
    """Using a chain again makes it young; an empty directory has none."""
    directory = Directory(100)
    assert directory.oldest_at == 0.0
    directory.insert(build_chain(("one", 10)), 1.0)
    directory.insert(build_chain(("other", 10)), 2.0)
    assert directory.oldest_at == 1.0
    directory.insert(build_chain(("one", 12)), 3.0)
    assert directory.oldest_at == 2.0
    directory.check_integrity()


def test_nobody_is_crowded_at_the_beginning_or_where_there_is_room() -> None:
    """Room that was never used is as old as the first placement."""
    crowding, states = Crowding(), build_states(1000, 1000)
    assert not crowding.crowded(states[0], 5000, 0.0)
    for step in range(50):
        use(crowding, states, 0, float(step))
    assert not crowding.crowded(states[0], 10, 50.0)


def test_a_fleet_in_equal_use_is_not_crowded() -> None:
    """All caches are full and turn over alike."""
    crowding, states = Crowding(), build_states(100, 100, 100)
    for step in range(300):
        use(crowding, states, step % 3, float(step))
    assert not any(crowding.crowded(state, 10, 300.0) for state in states)


def test_a_worker_that_turns_over_much_faster_is_crowded() -> None:
    """It gives up blocks of ten seconds ago, where others keep some of minutes ago."""
    crowding, states = Crowding(), build_states(100, 100)
    for step in range(50):
        use(crowding, states, 1, float(step))
    for step in range(50, 200):
        use(crowding, states, 0, float(step))
    assert crowding.crowded(states[0], 10, 200.0)
    assert not crowding.crowded(states[1], 10, 200.0)
    assert (200.0 - states[0].directory.oldest_at) * YOUNGER < 200.0 - states[1].directory.oldest_at


def test_nobody_is_crowded_before_its_cache_has_turned_over_once() -> None:
    """Whose cache is the first to be full has only been used first; it is no reason to send others its prompts."""
    crowding, states = Crowding(), build_states(100, 100)
    use(crowding, states, 1, 0.0)
    for step in range(200, 219):
        use(crowding, states, 0, float(step))
    assert 0 < states[0].directory.evicted_blocks < states[0].directory.bound_blocks
    assert not crowding.crowded(states[0], 10, 219.0)
    for step in range(219, 250):
        use(crowding, states, 0, float(step))
    assert crowding.crowded(states[0], 10, 250.0)


def test_the_oldest_blocks_are_looked_for_now_and_then() -> None:
    """64 workers are not asked at every placement."""
    crowding, states = Crowding(), build_states(10, 1000)
    for step in range(LOOK_EVERY):
        use(crowding, states, 0, float(step))
    assert crowding.crowded(states[0], 10, float(LOOK_EVERY))


def test_a_crowded_home_keeps_what_it_holds_and_gives_away_what_is_new_to_it() -> None:
    """The conversation that is cached there stays; one that would push another out goes to a worker with room."""
    router, fleet = build_router(), build_fleet(2, cache_blocks=60)
    at_home = [
        name
        for name in (f"talk-{n}" for n in range(200))
        if router.peek(build_prompt((name, 20)), fleet, 0.0).home == "worker-0"
    ]
    away = frozenset({"worker-1"})
    for number in range(60):
        last = at_home[number]
        serve(router, build_prompt((last, 20)), fleet, now=float(number), exclude=away)
    held, new = (
        router.peek(build_prompt((last, 22)), fleet, 61.0),
        router.peek(build_prompt((at_home[70], 20)), fleet, 61.0),
    )
    assert (held.worker, held.reason) == ("worker-0", "home")
    assert (new.worker, new.reason) == ("worker-1", "left_home:load")
    scores = {candidate.worker: candidate.score for candidate in new.candidates}
    assert scores["worker-0"] > scores["worker-1"] + new.slack_seconds


def test_what_was_warmed_is_no_older_than_its_warming() -> None:
    """A worker whose cache was filled ahead a moment ago is not taken for one that keeps blocks from the beginning."""
    router, fleet = build_router(), build_fleet(2, cache_blocks=60)
    prompts = [build_prompt((f"talk-{number}", 20)) for number in range(200)]
    at_home = [prompt for prompt in prompts if router.peek(prompt, fleet, 0.0).home == "worker-0"]
    for number in range(3):
        serve(router, at_home[number], fleet)
        router.warming.believe(f"warm-{number}", build_prompt((f"warm-{number}", 20)), "worker-1", 58.0)
    for number in range(2 * LOOK_EVERY):
        serve(router, at_home[number % 3], fleet, now=58.0 + number / 100)
    new = router.peek(at_home[3], fleet, 62.0)
    assert (new.worker, new.reason) == ("worker-0", "home")


def test_one_worker_with_room_crowds_nobody_else() -> None:
    """Just restarted, or larger than the others: its room is no reason to send it all that is new to the fleet."""
    crowding, states = Crowding(), build_states(100, 100, 100, 1000)
    for step in range(400):
        use(crowding, states, step % 4, float(step))
    assert not any(crowding.crowded(state, 10, 400.0) for state in states)


def test_two_crowded_of_four_are_told_by_the_room_of_the_others() -> None:
    """Half of the fleet keeps blocks of long ago."""
    crowding, states = Crowding(), build_states(100, 100, 1000, 1000)
    for step in range(400):
        use(crowding, states, step % 2, float(step))
    assert [crowding.crowded(state, 10, 400.0) for state in states] == [True, True, False, False]
