"""Belief: the size of a worker's cache, learned from what it reports; restarts are noticed."""

from __future__ import annotations

import random

from router.belief import BOUND_BLOCKS, RESTART_AFTER, Belief, Report, Verdict
from router.directory import Directory
from tests.router.placement_builders import build_chain


def report(predicted: int, reported: int, block_tokens: int = 64) -> Report:
    return Report(predicted * block_tokens, reported * block_tokens, block_tokens)


def run_against_a_cache(told: int | None, real_blocks: int, requests: int = 3000) -> Belief:
    """A worker whose cache holds `real_blocks`, under requests of 40 conversations to every 1 of the rest."""
    belief, chance = Belief(told), random.Random(5)
    directory, cache = Directory(belief.bound_blocks), Directory(real_blocks)
    for _ in range(requests):
        talk = f"talk-{int(chance.expovariate(1 / 60))}"
        chain = build_chain(("system", 4), (talk, 16))
        verdict = belief.learn(report(directory.match(chain), cache.match(chain)))
        if verdict is Verdict.CLEAR:
            directory.clear()
        directory.resize(belief.bound_blocks)
        directory.insert(chain)
        cache.insert(chain)
    return belief


def test_the_start_is_the_workers_own_word() -> None:
    """And a sane guess where it says nothing."""
    assert Belief(500).bound_blocks == 500
    assert Belief().bound_blocks == BOUND_BLOCKS


def test_a_right_prediction_changes_nothing() -> None:
    """Nor does one that is off by a block or two."""
    belief = Belief(500)
    assert belief.learn(report(30, 30)) is Verdict.KEEP
    assert belief.learn(report(30, 28)) is Verdict.KEEP
    assert belief.learn(report(0, 0)) is Verdict.KEEP


def test_a_cache_smaller_than_told_is_learned() -> None:
    """Told 4 times too much, the bound comes down to about the truth."""
    assert 0.6 * 600 <= run_against_a_cache(2400, 600).bound_blocks <= 1.5 * 600


def test_a_cache_larger_than_guessed_is_learned() -> None:
    """A bound that shrank too far grows again, as the worker holds more than believed."""
    belief = Belief()
    for _ in range(200):
        belief.learn(report(20, 40))
    assert belief.bound_blocks > BOUND_BLOCKS


def test_a_size_told_too_small_is_outgrown() -> None:
    """A worker with a second tier holds more than its first: told a quarter of the truth, the bound goes up to it."""
    assert 0.6 * 600 <= run_against_a_cache(150, 600).bound_blocks <= 1.5 * 600


def test_a_directory_that_is_not_full_says_nothing_of_the_size() -> None:
    """After a start the gateway knows little of what workers hold; that is no reason to believe them larger."""
    belief = Belief(300)
    for _ in range(50):
        assert belief.learn(report(10, 40), full=False) is Verdict.KEEP
    assert belief.bound_blocks == 300


def test_growth_ends_somewhere() -> None:
    """A worker that counts otherwise than the router does not make a directory grow for ever."""
    belief = Belief(300)
    for _ in range(500):
        belief.learn(report(10, 40))
    assert belief.bound_blocks == 16 * 300


def test_steps_become_small_where_errors_balance_and_large_when_the_truth_changes() -> None:
    """Around the right size the bound stays within a few percent; half the cache gone, it follows in some answers."""
    belief = Belief(1000)
    for number in range(400):
        belief.learn(report(40, 30) if number % 2 else report(30, 40))
    assert 900 <= belief.bound_blocks <= 1100
    for _ in range(40):
        belief.learn(report(40, 20))
    assert belief.bound_blocks <= 500


def test_a_run_of_empty_answers_is_a_restart() -> None:
    """Nothing of what was believed, several times in a row: forget, and keep the size."""
    belief = Belief(500)
    belief.learn(report(20, 20))
    verdicts = [belief.learn(report(20, 0)) for _ in range(RESTART_AFTER)]
    assert verdicts[-1] is Verdict.CLEAR
    assert Verdict.CLEAR not in verdicts[:-1]
    assert belief.bound_blocks == 500


def test_a_worker_that_never_hits_is_believed_to_hold_next_to_nothing() -> None:
    """With prefix caching off every run ends empty: the bound falls to its floor."""
    belief = Belief(10_000)
    for _ in range(20 * RESTART_AFTER):
        belief.learn(report(20, 0))
    assert belief.bound_blocks <= 16


def test_hits_in_between_are_no_restart() -> None:
    """A small cache misses often, but not always."""
    belief = Belief(500)
    verdicts = [belief.learn(report(20, 0 if number % 4 else 20)) for number in range(40)]
    assert Verdict.CLEAR not in verdicts
    assert belief.bound_blocks < 500


def test_a_tiny_cache_is_taken_at_its_word() -> None:
    """Bounds below the usual floor stay possible."""
    belief = Belief(3)
    for _ in range(50):
        belief.learn(report(20, 3))
    assert belief.bound_blocks == 3
