"""What counts as moved when a worker joins, and when the hit rate is back."""

import pytest

from bench.bars.newcomer import moved_to, recovery_seconds, share, watch_newcomer
from bench.peers.plain import RoundRobin
from router.replay.core import EngineSettings, Outcome, Replayed
from tests.bench.peers.builders import build_trace

JOINS_AT = 300.0
OTHERS = 1000


def build_replayed(workers: list[int], at_seconds: list[float], cached_tokens: list[int]) -> Replayed:
    """Outcomes of requests in their order."""
    rows = zip(workers, at_seconds, cached_tokens, strict=True)
    outcomes = [Outcome(number, worker, at, 0.1, 0.2, cached) for number, (worker, at, cached) in enumerate(rows)]
    return Replayed(outcomes, [1.0], max(at_seconds))


def build_moves(prompts: list[str], workers: list[int], at_seconds: list[float]) -> list[int | None]:
    """What moved among these prompts, which come between so many others that none of their blocks is common."""
    trace = build_trace([*["zz"] * OTHERS, *prompts])
    replayed = build_replayed([3] * OTHERS + workers, [0.0] * OTHERS + at_seconds, [0] * (OTHERS + len(prompts)))
    return moved_to(trace, replayed, JOINS_AT)


def test_a_prefix_that_comes_to_a_worker_without_it_has_moved():
    """One stays, one moves; a cold one and one that came long ago do not count."""
    prompts = ["ab", "cd", "old", "abx", "cdx", "ef", "old"]
    at_seconds = [200.0, 210.0, -50.0, 310.0, 320.0, 330.0, 340.0]
    assert build_moves(prompts, [0, 1, 2, 0, 2, 2, 0], at_seconds) == [None, 2]


def test_a_prefix_counts_once_at_its_longest():
    """Who holds less of it is no holder, and the second time that it is asked for says nothing new."""
    assert build_moves(["ab", "abc", "abcd", "abce"], [0, 1, 0, 1], [200.0, 250.0, 310.0, 320.0]) == [0]


def test_common_beginnings_do_not_count():
    """They are everywhere."""
    assert build_moves(["zz", "zzy"], [0, 1], [200.0, 310.0]) == []


def test_the_share_of_none_is_none():
    """No prefix came again."""
    assert share([]) == 0.0
    assert share([True, False]) == 0.5


@pytest.mark.parametrize(("cold_seconds", "expected"), [(0, 0.0), (200, 200.0)])
def test_recovery_is_when_five_minutes_hit_as_much_as_without_the_newcomer(cold_seconds: int, expected: float):
    """Cold for a while after the joining, as warm as ever then."""
    trace = build_trace(["ab"] * 1200)
    at = [float(number) for number in range(1200)]
    warm = build_replayed([0] * 1200, at, [512] * 1200)
    cold = [0 if JOINS_AT <= second < JOINS_AT + cold_seconds else 512 for second in range(1200)]
    found = recovery_seconds(trace, build_replayed([0] * 1200, at, cold), warm, JOINS_AT)
    assert found == pytest.approx(expected, abs=20.0)


def test_a_newcomer_is_watched_from_the_middle_of_the_trace_on():
    """Round robin gives it its share at once."""
    settings = EngineSettings(workers=3, cache_blocks=50)
    trace = build_trace(["ab"] * 400)
    found = watch_newcomer(trace, lambda: RoundRobin(settings), settings, 1.0)
    assert found.newcomer_share == pytest.approx(0.25, abs=0.01)
