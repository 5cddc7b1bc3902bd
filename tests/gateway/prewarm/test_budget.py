"""A budget: so many seconds of a worker's prefill, and no longer than told."""

from __future__ import annotations

from gateway.prewarm.budget import Budget


def test_what_fits_is_allowed_until_it_is_spent():
    """Each spending leaves less; a smaller one may still fit."""
    budget = Budget(3.0, deadline=100.0)
    assert budget.allows(2.0, 0.0)
    budget.spend(2.0)
    assert not budget.allows(2.0, 0.0)
    assert budget.why_not(0.0) == "budget"
    assert budget.allows(1.0, 0.0)
    assert budget.spent_seconds == 2.0


def test_after_the_deadline_nothing_is():
    """And the reason is another."""
    budget = Budget(3.0, deadline=100.0)
    assert not budget.allows(0.1, 100.0)
    assert budget.why_not(100.0) == "deadline"
