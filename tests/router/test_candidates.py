"""Candidates: columns that read like a sequence of candidates."""

from __future__ import annotations

from router.candidates import Candidates
from router.core import Candidate
from tests.router.placement_builders import build_fleet, build_prompt, build_router, send


def build_candidates() -> Candidates:
    """Two workers: one that may serve, one that may not."""
    candidates = Candidates(("one", "other"), [None, "draining"], [True, False])
    for column in (candidates.cached_tokens, candidates.wait, candidates.own, candidates.decode, candidates.loads):
        column.extend([1, 2])
    candidates.scores, candidates.usable = [0.5, 0.25], [0]
    return candidates


def test_a_row_is_read_as_a_candidate() -> None:
    """By index, from the end, by slice and one after the other: the same rows."""
    candidates = build_candidates()
    rows = [Candidate("one", None, 1, 1, 1, 1, 0.5, True), Candidate("other", "draining", 2, 2, 2, 2, 0.25)]
    assert list(candidates) == rows
    assert [candidates[0], candidates[-1]] == rows
    assert candidates[:2] == tuple(rows)
    assert len(candidates) == 2


def test_equal_numbers_are_equal_candidates() -> None:
    """Two placements of one prompt on one state say the same, also beside a plain tuple."""
    assert build_candidates() == build_candidates() == tuple(build_candidates())
    assert build_candidates() != ()
    assert build_candidates() != "candidates"


def test_a_placement_keeps_the_numbers_of_its_moment() -> None:
    """What came later does not show in an earlier placement."""
    router, fleet, prompt = build_router(), build_fleet(3), build_prompt(("p", 40))
    first = send(router, prompt, fleet)
    before = tuple(first.candidates)
    send(router, prompt, fleet)
    assert tuple(first.candidates) == before
    assert all(candidate.wait_seconds == 0 for candidate in first.candidates)
