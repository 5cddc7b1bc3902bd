"""The bench of one placement: it says what it measures, and what misses a bar."""

from __future__ import annotations

import pytest

from bench import place


def test_a_small_run_measures_every_kind() -> None:
    """Microseconds of CPU time, more than none and less than a hundredth of a second."""
    costs = place.costs_microseconds(workers=4, directory_blocks=200, blocks=24, rounds=1)
    assert set(costs) == set(place.KINDS)
    assert all(1 < cost < 10_000 for cost in costs.values())


def test_a_cost_over_the_bar_and_growth_with_the_directory_are_told() -> None:
    """The least of the sizes is held against the bar, the largest against the smallest."""
    assert place.missed_bars(8, [40.0, 45.0, 50.0]) == []
    assert place.missed_bars(64, [149.0, 149.0]) == []
    (slow,) = place.missed_bars(8, [61.0, 70.0])
    assert "61 µs is over 60 µs" in slow
    (grows,) = place.missed_bars(8, [30.0, 50.0])
    assert "1.7 times" in grows


@pytest.mark.parametrize(("cost", "code"), [(10.0, 0), (1000.0, 1)])
def test_check_fails_where_a_bar_is_missed(cost: float, code: int, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """With --check the exit code says so."""
    monkeypatch.setattr(place, "costs_microseconds", lambda *_: dict.fromkeys(place.KINDS, cost))
    monkeypatch.setattr("sys.argv", ["place.py", "--check"])
    assert place.main() == code
    assert ("all bars are met" in capsys.readouterr().out) == (code == 0)
