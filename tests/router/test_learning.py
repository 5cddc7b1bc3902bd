"""Learning: lines through noisy observations, and means that forget."""

from __future__ import annotations

import random

import pytest

from router.learning import MOST_OUTPUT_TOKENS, RELEARN_EVERY, OutputLengths, RobustLine, RunningMean
from router.rates import (
    DECODE_SECONDS_PER_CONTEXT_TOKEN,
    PREFILL_BOUNDS,
    PREFILL_FIXED_SECONDS,
    PREFILL_TOKENS_PER_SECOND,
    WorkerRates,
    decode_line,
    settle_rates,
)


def build_line(scales: bool = True) -> RobustLine:
    return RobustLine(PREFILL_FIXED_SECONDS, 1 / PREFILL_TOKENS_PER_SECOND, PREFILL_BOUNDS, scales=scales)


def feed(line: RobustLine, fixed: float, rate: float, count: int = 64, noise: float = 0.0, wild: float = 0.0) -> None:
    """Observations of a worker of that speed; `wild` is the share that took ten times as long."""
    chance = random.Random(7)
    for _ in range(count):
        tokens = chance.randint(50, 20_000)
        seconds = (fixed + tokens / rate) * (1 + noise * chance.uniform(-1, 1))
        line.observe(tokens, seconds * (10 if chance.random() < wild else 1))


def test_a_line_stands_as_configured_until_enough_was_seen() -> None:
    """Seven observations say nothing yet, the eighth does."""
    line = build_line()
    feed(line, 0.1, 500, count=RELEARN_EVERY - 1)
    assert (line.slope, line.fixed) == (1 / PREFILL_TOKENS_PER_SECOND, PREFILL_FIXED_SECONDS)
    assert not line.fitted
    feed(line, 0.1, 500, count=1)
    assert line.fitted


@pytest.mark.parametrize("rate", [400, 8000, 90_000])
def test_the_true_speed_is_found_from_any_start(rate: int) -> None:
    """A laptop, the default and a fast card: within 2 %, with a tenth of noise within 10 %."""
    exact, noisy = build_line(), build_line()
    feed(exact, 0.05, rate)
    feed(noisy, 0.05, rate, noise=0.1)
    assert 1 / exact.slope == pytest.approx(rate, rel=0.02)
    assert exact.fixed == pytest.approx(0.05, abs=0.01)
    assert 1 / noisy.slope == pytest.approx(rate, rel=0.1)


def test_one_answer_in_six_may_be_arbitrarily_slow() -> None:
    """Stalls and cold starts do not make a worker slow."""
    line = build_line()
    feed(line, 0.02, 8000, count=96, noise=0.05, wild=1 / 6)
    assert 1 / line.slope == pytest.approx(8000, rel=0.25)


def test_a_worker_that_changes_speed_is_learned_anew() -> None:
    """A window of observations is what counts: after it the old speed is forgotten."""
    line = build_line()
    feed(line, 0.02, 8000)
    feed(line, 0.02, 2000, count=96)
    assert 1 / line.slope == pytest.approx(2000, rel=0.05)


def test_prompts_of_one_length_scale_both_parts() -> None:
    """Where slope and fixed cost cannot be told apart, the prediction for that length still becomes right."""
    line = build_line()
    for _ in range(64):
        line.observe(1000, 0.5)
    assert line.fixed + 1000 * line.slope == pytest.approx(0.5, rel=0.02)


def test_a_line_that_may_not_scale_learns_nothing_from_one_length() -> None:
    """The decode line would take any slow model for a steep one."""
    line = build_line(scales=False)
    for _ in range(64):
        line.observe(1000, 0.5)
    assert line.slope == 1 / PREFILL_TOKENS_PER_SECOND


def test_what_is_learned_stays_within_bounds() -> None:
    """Times of zero and of hours end at the bounds, negative ones are not counted."""
    fast, slow = build_line(), build_line()
    for number in range(64):
        fast.observe(1000 * (number % 7), 0.0)
        slow.observe(1000 * (number % 7), 3600.0 * (number % 7))
        assert not slow.observe(-1, 5.0)
        assert not slow.observe(5, -1.0)
    assert PREFILL_BOUNDS.slope_low <= fast.slope
    assert slow.slope <= PREFILL_BOUNDS.slope_high
    assert slow.observations == 64


def test_the_decode_line_learns_how_steps_grow_with_context() -> None:
    """12 ms and 60 ns per token of context, from gaps at many loads."""
    line, chance = decode_line(), random.Random(3)
    assert line.slope == DECODE_SECONDS_PER_CONTEXT_TOKEN
    for _ in range(64):
        context = chance.randint(1000, 400_000)
        line.observe(context, 0.012 + 60e-9 * context)
    assert line.slope == pytest.approx(60e-9, rel=0.05)


def build_rates(*seen: float | None, configured: float | None = None) -> list[WorkerRates]:
    """One worker for each true rate; None has answered nothing yet."""
    fleet = [WorkerRates(configured) for _ in seen]
    for rates, rate in zip(fleet, seen, strict=True):
        if rate is not None:
            feed(rates.prefill, 0.02, rate)
    settle_rates(fleet)
    return fleet


def test_workers_that_answered_nothing_move_with_the_learned_ones() -> None:
    """Otherwise the first learned worker would look best to everybody and the others would never be learned."""
    assert [round(1 / rates.seconds_per_token, -2) for rates in build_rates(64_000, None, None)] == [64_000] * 3


def test_small_differences_between_workers_are_noise() -> None:
    """Rates within a fifth of each other count as one, so that nobody leaves home for an error of measurement."""
    speeds = {round(rates.seconds_per_token, 9) for rates in build_rates(8000, 8500, 7600)}
    assert len(speeds) == 1


def test_a_slow_worker_among_fast_ones_keeps_its_own_rate() -> None:
    """An older card in the fleet is known as such."""
    speeds = [round(1 / rates.seconds_per_token, -2) for rates in build_rates(8000, 8000, 8000, 2000)]
    assert speeds == [8000, 8000, 8000, 2000]


def test_a_worker_is_told_apart_by_more_than_a_handful_of_answers() -> None:
    """Sixteen that a hiccup of the machine made slow say nothing yet about a worker among others."""
    fleet = build_rates(8000, 8000, 8000, None)
    feed(fleet[3].prefill, 0.02, 2000, count=16)
    settle_rates(fleet)
    assert [round(1 / rates.seconds_per_token, -2) for rates in fleet] == [8000] * 4
    feed(fleet[3].prefill, 0.02, 2000, count=8)
    settle_rates(fleet)
    assert round(1 / fleet[3].seconds_per_token, -2) == 2000


def test_a_worker_that_a_hiccup_made_look_slow_is_asked_again() -> None:
    """Believed slow it gets nothing, and could never show that it is not."""
    fleet = build_rates(8000, 8000, 8000, 2000)
    for _ in range(2):
        for rates in fleet[:3]:
            feed(rates.prefill, 0.02, 8000)
        settle_rates(fleet)
    assert [round(1 / rates.seconds_per_token, -2) for rates in fleet] == [8000] * 4
    assert fleet[3].start_trial()
    fleet[3].prefill.observe(800, 0.02 + 800 / 8000)
    settle_rates(fleet)
    assert [round(1 / rates.seconds_per_token, -2) for rates in fleet] == [8000] * 4
    assert not fleet[3].start_trial()


def test_a_worker_that_is_still_slow_is_told_by_one_request() -> None:
    """It stands at its own rate again as soon as that was sent; each trial costs one answer, not a burst."""
    fleet = build_rates(8000, 8000, 8000, 2000)
    for _ in range(3):
        for _ in range(2):
            for rates in fleet[:3]:
                feed(rates.prefill, 0.02, 8000)
            settle_rates(fleet)
        assert fleet[3].start_trial()
        settle_rates(fleet)
        assert [round(1 / rates.seconds_per_token, -2) for rates in fleet] == [8000, 8000, 8000, 2000]
        assert not fleet[3].start_trial()
        fleet[3].prefill.observe(800, 0.02 + 800 / 2000)
        settle_rates(fleet)
        assert round(1 / fleet[3].seconds_per_token, -2) == 2000


def test_a_worker_known_to_be_slow_says_nothing_of_the_others() -> None:
    """Of two, the middle of both would be believed of a third that has told nothing."""
    fleet = build_rates(8000, 8000, 8000, 2000)
    for _ in range(2):
        for rates in fleet[:3]:
            feed(rates.prefill, 0.02, 8000)
        settle_rates(fleet)
    fleet[3].start_trial()
    for _ in range(4):
        feed(fleet[0].prefill, 0.02, 8000)
        settle_rates(fleet)
    assert [round(1 / rates.seconds_per_token, -2) for rates in fleet[:3]] == [8000] * 3


def test_a_slow_worker_that_is_heard_of_keeps_its_own_rate() -> None:
    """However seldom, as long as it is sometimes."""
    fleet = build_rates(8000, 8000, 8000, 2000)
    for _ in range(6):
        for rates in fleet[:3]:
            feed(rates.prefill, 0.02, 8000)
        fleet[3].prefill.observe(800, 0.02 + 800 / 2000)
        settle_rates(fleet)
    assert round(1 / fleet[3].seconds_per_token, -2) == 2000


def test_it_is_told_by_how_much_predictions_changed() -> None:
    """What was counted in seconds of prefill is then counted anew."""
    rates = WorkerRates(4000, 0.02)
    feed(rates.prefill, 0.02, 8000)
    assert settle_rates([rates]) == pytest.approx((0.02 + 4096 / 8000) / (0.02 + 4096 / 4000), rel=0.02)
    assert settle_rates([rates]) == 1.0
    assert settle_rates([WorkerRates()]) == 1.0


def test_configured_proportions_hold_until_a_worker_answers() -> None:
    """Two cards configured 1 : 4: if the learned one is twice as fast as told, so is the other."""
    small, big = WorkerRates(1000), WorkerRates(4000)
    feed(small.prefill, 0.02, 2000)
    settle_rates([small, big])
    assert 1 / big.seconds_per_token == pytest.approx(8000, rel=0.02)


def test_nothing_learned_leaves_the_configuration() -> None:
    """And zero is a fixed cost that may be configured."""
    rates = WorkerRates(5000, 0.0)
    settle_rates([rates])
    assert (round(1 / rates.seconds_per_token), rates.fixed_seconds) == (5000, 0.0)
    assert rates.configured_as(5000, 0.0)
    assert not rates.configured_as(5000, None)


def test_a_mean_averages_first_and_forgets_later() -> None:
    """The first values weigh alike, later ones 1 %."""
    mean = RunningMean()
    for value in (10, 20, 30):
        mean.observe(value)
    assert mean.value == pytest.approx(20)
    for _ in range(1000):
        mean.observe(100)
    assert mean.value == pytest.approx(100, rel=0.01)


def test_one_endless_answer_does_not_spoil_the_mean() -> None:
    """An outlier weighs at most as much as eight means."""
    mean = RunningMean()
    for _ in range(200):
        mean.observe(100)
    mean.observe(10_000_000)
    assert mean.value < 120


def test_output_lengths_are_per_tenant_and_bounded_by_what_was_asked() -> None:
    """A tenant with short answers is expected short; a new tenant like everybody; nobody above max_tokens."""
    outputs = OutputLengths()
    assert outputs.expect("nobody") == 0.0
    for _ in range(20):
        outputs.observe("short", 10)
        outputs.observe("long", 1000)
    assert outputs.expect("short") == pytest.approx(10)
    assert outputs.expect("new") == pytest.approx(505, rel=0.2)
    assert outputs.expect("long", max_tokens=50) == 50


def test_a_worker_that_counts_wrongly_does_not_make_all_answers_endless() -> None:
    """One answer in eight is said to have had a thousand million tokens."""
    outputs = OutputLengths()
    for number in range(4000):
        outputs.observe("a", 10**9 if number % 8 == 0 else 50)
    assert 50 < outputs.expect("a") <= 2 * MOST_OUTPUT_TOKENS / 8


def test_tenants_do_not_fill_the_memory() -> None:
    """The least recently seen are forgotten."""
    outputs = OutputLengths(most_tenants=3)
    for number in range(50):
        outputs.observe(f"tenant-{number}", 5)
    assert len(outputs._tenants) == 3
