"""A step being planned: how much may still be computed, and what a victim gives back."""

from __future__ import annotations

from backends.draft import Draft
from tests.backends.core_builders import build_prompt, build_sequence


def test_a_chunk_ends_with_the_tokens_the_step_or_the_chunk():
    """Whichever is first."""
    assert Draft(100, 100).end_of(5, 20) == 20
    assert Draft(8, 100).end_of(5, 20) == 13
    assert Draft(100, 4).end_of(5, 20) == 9


def test_only_the_chunk_that_reaches_the_last_token_samples():
    """And only if a token may follow."""
    draft, sequence = Draft(100, 100), build_sequence(build_prompt(10))
    draft.add(sequence, 0, 6)
    draft.add(sequence, 6, 10)
    sequence.limit_tokens = 10
    draft.add(sequence, 6, 10)
    assert [item.samples for item in draft.items] == [False, True, False]
    assert draft.budget_tokens == 100 - 6 - 4 - 4


def test_a_victim_gives_its_tokens_back():
    """Trap 11; one that was not planned yet has none."""
    draft = Draft(20, 20)
    one, other, later = (build_sequence(build_prompt(8), name) for name in "abc")
    draft.add(one, 0, 8)
    draft.add(other, 0, 8)
    draft.drop(one)
    draft.drop(later)
    assert draft.budget_tokens == 12
    assert draft.preempted == 2
    assert draft.sequences == [other]
    assert [item.sequence for item in draft.items] == [other]
