"""What the router makes of a wrong start: rates in other tokens, load predicted by wrong rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.router.placement_builders import build_fleet, build_prompt, build_router, send


def test_a_wrong_rate_at_the_start_makes_no_busy_fleet() -> None:
    """Workers eight times as fast as configured: what was placed before that was known is no load any more."""
    router, fleet = build_router(), build_fleet(1, prefill_tokens_per_second=1000.0)
    for number in range(8):
        placement = send(router, build_prompt((f"p{number}", 20 + number)), fleet, now=10.0 * number)
        router.first_token(placement.request_id, 10.0 * number + (20 + number) * 64 / 8000)
        before = router.stats(10.0 * number + 5).utilisation
        router.finished(placement.request_id, 10.0 * number + 5, reported_cached_tokens=0, output_tokens=20)
    assert router.stats(75.0).utilisation == pytest.approx(before / 8, rel=0.2)


def test_rates_are_learned_in_the_workers_own_tokens() -> None:
    """An estimate four times too low in its first minutes must not teach a rate four times too low."""
    router, fleet = build_router(), build_fleet(1)
    for number in range(40):
        tokens = (5 + 3 * number) * 64 + 10
        placement = send(router, build_prompt((f"p{number}", 5 + 3 * number)), fleet, now=100.0 * number)
        router.first_token(placement.request_id, 100.0 * number + 0.05 + 4 * tokens / 8000)
        usage = {"reported_cached_tokens": 0, "prompt_tokens": 4 * tokens, "output_tokens": 20}
        router.finished(placement.request_id, 100.0 * number + 20, **usage)
    assert router.stats().workers[0].prefill_tokens_per_second == pytest.approx(8000, rel=0.05)


def learned_rates(*, reported_times: int, text_bytes: int | None = None) -> list[float]:
    """Rates of two workers that prefill alike, of which the second reports so many times the tokens."""
    router, fleet = build_router("round_robin"), build_fleet(2)
    for number in range(80):
        prompt = replace(build_prompt((f"p{number}", 20 + number)), text_bytes=text_bytes)
        placement = send(router, prompt, fleet, now=100.0 * number)
        times = reported_times if placement.worker == "worker-1" else 1
        router.first_token(placement.request_id, 100.0 * number + 0.05 + prompt.tokens / 8000)
        usage = {"reported_cached_tokens": 0, "prompt_tokens": times * prompt.tokens, "output_tokens": 20}
        router.finished(placement.request_id, 100.0 * number + 20, **usage)
    return [each.prefill_tokens_per_second for each in router.stats().workers]


def test_a_worker_that_counts_a_hundred_times_the_tokens_teaches_nothing() -> None:
    """It would look a hundred times as fast and draw everything."""
    rates = learned_rates(reported_times=100)
    assert rates[1] == pytest.approx(rates[0], rel=0.2)


def test_where_we_only_estimate_the_workers_count_is_believed() -> None:
    """Bytes stand in for a tokeniser: only the worker knows how many tokens they are."""
    rates = learned_rates(reported_times=100, text_bytes=1000)
    assert rates[1] > 20 * rates[0]
