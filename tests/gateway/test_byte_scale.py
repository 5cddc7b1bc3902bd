"""Learning how many bytes a token has: quick at first, hard to mislead later."""

from __future__ import annotations

import random

import pytest

from gateway.byte_scale import ByteScale


def test_four_bytes_are_a_token_until_somebody_reports() -> None:
    """And nothing is ever less than one token."""
    scale = ByteScale()
    assert scale.tokens(400) == 100
    assert scale.tokens(0) == 1


def test_the_first_report_is_taken_as_it_is() -> None:
    """One real count is worth more than a guess."""
    scale = ByteScale()
    scale.observe(3000, 1000)
    assert scale.bytes_per_token == pytest.approx(3.0)
    assert scale.tokens(900) == 300


@pytest.mark.parametrize("truth", [1.8, 3.3, 4.6])
def test_the_ratio_settles_on_what_workers_report(truth: float) -> None:
    """With noise of a fifth, and one report in ten wildly off (an image, a cut prompt)."""
    chance, scale = random.Random(7), ByteScale()
    for number in range(400):
        size_bytes = chance.randint(500, 50_000)
        ratio = truth * chance.uniform(0.8, 1.2)
        tokens = 100_000 if number % 10 == 9 else round(size_bytes / ratio)
        scale.observe(size_bytes, tokens)
    assert scale.bytes_per_token == pytest.approx(truth, rel=0.15)


def test_a_change_of_traffic_is_followed() -> None:
    """From English to Chinese within a hundred requests."""
    scale = ByteScale()
    for _ in range(200):
        scale.observe(4000, 1000)
    for _ in range(100):
        scale.observe(2000, 1000)
    assert scale.bytes_per_token == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(("text_bytes", "tokens"), [(20, 30), (4000, 0), (4000, -1)])
def test_reports_that_say_nothing_are_left_out(text_bytes: int, tokens: int) -> None:
    """Short prompts are mostly the worker's own template."""
    scale = ByteScale()
    scale.observe(text_bytes, tokens)
    assert (scale.bytes_per_token, scale.reports) == (4.0, 0)
