"""The demonstration's figures are computed from answers, and failures are counted, not hidden."""

from __future__ import annotations

import dataclasses

import pytest

from gateway.demo.drive import Answer
from gateway.demo.report import figures, table


def build_answer(**changes) -> Answer:
    """A good answer of 100 prompt tokens, 40 of them cached."""
    answer = Answer("shop-0", "yes", 0.2, 1.0, 100, 40, 10, "worker-0", "home")
    return dataclasses.replace(answer, **changes)


def test_the_hit_rate_is_weighted_by_tokens():
    """A long prompt counts for more than a short one."""
    answers = [build_answer(prompt_tokens=900, cached_tokens=0), build_answer(prompt_tokens=100, cached_tokens=100)]
    assert figures(answers, 2.0)["token_hit_rate"] == pytest.approx(0.1)


def test_times_are_milliseconds_over_good_answers():
    """A failed request has no time to first token; it is an error."""
    answers = [build_answer(ttft_seconds=t / 10) for t in range(1, 11)] + [
        build_answer(ttft_seconds=99, error="HTTP 503")
    ]
    found = figures(answers, 2.0)
    assert found["ttft_ms"]["mean"] == pytest.approx(550)
    assert found["ttft_ms"]["p50"] == pytest.approx(550)
    assert found["ttft_ms"]["p90"] == pytest.approx(1000)
    assert (found["requests"], found["errors"], found["error_kinds"]) == (11, 1, {"HTTP 503": 1})


def test_shares_and_rates_come_from_the_answers():
    """Requests per worker, share at home, throughput over the wall clock."""
    answers = [build_answer(), build_answer(worker="worker-1", reason="left_home:load")]
    found = figures(answers, 4.0)
    assert found["requests_per_worker"] == {"worker-0": 1, "worker-1": 1}
    assert found["share_at_home"] == pytest.approx(0.5)
    assert found["output_tokens_per_s"] == pytest.approx(5.0)


def test_a_run_in_which_everything_failed_still_has_figures():
    """Zeroes and the reasons, no division by zero."""
    found = figures([build_answer(error="ClientConnectorError")], 1.0)
    assert found["token_hit_rate"] == 0
    assert found["errors"] == 1
    assert "errors" in table({"round_robin": found, "homing": found})


def test_the_table_puts_the_policies_side_by_side_with_their_ratio():
    """The last column over the first: what leaving round robin is worth."""
    slow, fast = figures([build_answer(ttft_seconds=0.4)], 1.0), figures([build_answer(ttft_seconds=0.1)], 1.0)
    line = next(
        line for line in table({"round_robin": slow, "homing": fast}).splitlines() if line.startswith("TTFT mean")
    )
    assert line.split()[-4:] == ["400", "100", "0.25", "x"]
