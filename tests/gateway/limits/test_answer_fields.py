"""What answers say of limits, spelled as each kind of client reads it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from gateway.limits.account import Account
from gateway.limits.allowance import Refusal
from gateway.limits.answer_fields import anthropic_fields, duration, moment, openai_fields, retry_headers
from tests.gateway.limits.builders import build_tenant


def build_account(**limits) -> Account:
    return Account.open(build_tenant(**limits), 0.0)


def test_openai_names_limit_rest_and_reset():
    """For requests and tokens, whichever are limited."""
    account = build_account(requests_per_minute=600, tokens_per_minute=6000)
    account.allowance.take(1500, 0.0)
    assert openai_fields(account, 0.0).decode().splitlines() == [
        "x-ratelimit-limit-requests: 600",
        "x-ratelimit-remaining-requests: 599",
        "x-ratelimit-reset-requests: 100ms",
        "x-ratelimit-limit-tokens: 6000",
        "x-ratelimit-remaining-tokens: 4500",
        "x-ratelimit-reset-tokens: 15s",
    ]
    assert openai_fields(build_account(concurrency=3), 0.0) == b""


def test_anthropic_names_the_moment():
    """RFC 3339 in UTC."""
    account = build_account(requests_per_minute=6)
    account.allowance.take(0, 0.0)
    lines = anthropic_fields(account, 0.0).decode().splitlines()
    assert lines[:2] == ["anthropic-ratelimit-requests-limit: 6", "anthropic-ratelimit-requests-remaining: 5"]
    assert re.fullmatch(r"anthropic-ratelimit-requests-reset: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", lines[2])


def test_a_debt_reads_as_nothing_left():
    """Never below zero, and a reset of more than a minute."""
    account = build_account(tokens_per_minute=600)
    account.allowance.take(4200, 0.0)
    assert b"remaining-tokens: 0\r\nx-ratelimit-reset-tokens: 7m0s\r\n" in openai_fields(account, 0.0)


def test_a_share_reads_as_the_whole():
    """Alone, one of three: what is left here stands for what is left of all."""
    account = build_account(requests_per_minute=60)
    account.share(3, 0.0)
    account.allowance.take(0, 0.0)
    assert b"limit-requests: 60\r\nx-ratelimit-remaining-requests: 57\r\n" in openai_fields(account, 0.0)


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [(0, b"0ms"), (0.0171, b"18ms"), (1.5, b"1.5s"), (59.0, b"59s"), (60, b"1m0s"), (360, b"6m0s"), (3661.2, b"61m2s")],
)
def test_durations(seconds, spelled):
    """As `6m0s`."""
    assert duration(seconds) == spelled


def test_moments_are_near():
    """Now and then, never beyond what a date can be."""
    assert datetime.strptime(moment(0).decode(), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) <= datetime.now(UTC)
    assert moment(1e18) > moment(1e6)


def test_retry_after_is_never_zero():
    """Whole seconds rounded up, and milliseconds."""
    assert retry_headers(Refusal("requests", 0.0)) == (("retry-after", "1"), ("retry-after-ms", "1"))
    assert retry_headers(Refusal("requests", 2.2)) == (("retry-after", "3"), ("retry-after-ms", "2200"))
