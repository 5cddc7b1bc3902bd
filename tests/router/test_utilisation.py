"""Utilisation: how busy the fleet is, and the price of a second of prefill that follows."""

from __future__ import annotations

import pytest

from router.utilisation import Utilisation


def build_busy(share: float, workers: int = 4) -> Utilisation:
    """A fleet that has long been given `share` of what it can do."""
    load = Utilisation(window_seconds=60.0, price_limit=8.0)
    for second in range(600):
        load.add(share * workers, float(second))
    return load


def test_an_idle_fleet_has_the_least_price() -> None:
    """Nothing placed: ρ̂ is 0 and α is 1."""
    load = Utilisation(60.0, 8.0)
    assert (load.share(100.0, 4), load.price(100.0, 4)) == (0.0, 1.0)


@pytest.mark.parametrize(("share", "price"), [(0.5, 2.0), (0.75, 4.0), (0.99, 8.0), (3.0, 8.0)])
def test_the_price_is_that_of_a_queue_with_one_server(share: float, price: float) -> None:
    """α = 1 / (1 − ρ̂), at most 8."""
    load = build_busy(share)
    assert load.share(599.0, 4) == pytest.approx(min(0.99, share), rel=0.02)
    assert load.price(599.0, 4) == pytest.approx(price, rel=0.05)


def test_a_busy_fleet_is_known_as_such_within_seconds() -> None:
    """A gateway that has just started needs no whole window to see the load; its first burst is not taken for one."""
    load = Utilisation(window_seconds=60.0, price_limit=8.0)
    load.add(8.0, 0.0)
    assert load.share(0.0, 4) < 0.25
    for second in range(1, 10):
        load.add(0.7 * 4, float(second))
    assert load.share(9.5, 4) == pytest.approx(0.7, abs=0.2)
    for second in range(10, 30):
        load.add(0.7 * 4, float(second))
    assert load.share(29.5, 4) == pytest.approx(0.7, rel=0.1)


def test_work_is_forgotten_in_a_minute_or_two() -> None:
    """A burst does not keep the price high."""
    load = build_busy(0.9)
    assert load.share(599.0 + 60.0, 4) == pytest.approx(0.9 / 2.718, rel=0.05)
    assert load.price(10_000.0, 4) == 1.0


def test_work_that_was_predicted_at_a_wrong_rate_is_counted_anew() -> None:
    """Workers four times as fast as thought are a quarter as busy, from now on and in what has been added."""
    load = build_busy(0.8)
    load.rescale(0.25)
    assert load.share(599.0, 4) == pytest.approx(0.2, rel=0.02)


def test_work_taken_back_was_never_there() -> None:
    """A retry must not count twice, however late it comes."""
    load, same = build_busy(0.5), build_busy(0.5)
    load.add(30.0, 600.0)
    load.take_back(30.0, 600.0, 620.0)
    assert load.share(620.0, 4) == pytest.approx(same.share(620.0, 4))
    load.take_back(10_000.0, 620.0, 620.0)
    assert load.share(620.0, 4) == 0.0


def test_a_clock_that_steps_back_adds_no_work() -> None:
    """Decay never turns into growth."""
    load = build_busy(0.5)
    assert load.share(0.0, 4) <= load.share(599.0, 4)
    assert Utilisation(60.0, 8.0).share(0.0, 0) == 0.0
