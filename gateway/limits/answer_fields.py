"""What a limited tenant's answers say of its limits: `x-ratelimit-*`, or `anthropic-ratelimit-*` on /v1/messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Final

from gateway.errors import Headers
from gateway.limits.account import Account
from gateway.limits.allowance import REQUESTS, TOKENS, Bucket, Refusal

_OPENAI: Final = "x-ratelimit-limit-{0}: {1}\r\nx-ratelimit-remaining-{0}: %d\r\nx-ratelimit-reset-{0}: %b\r\n"
_ANTHROPIC: Final = (
    "anthropic-ratelimit-{0}-limit: {1}\r\nanthropic-ratelimit-{0}-remaining: %d\r\n"
    "anthropic-ratelimit-{0}-reset: %b\r\n"
)
_LONGEST_SECONDS: Final = 366 * 86400.0


def openai_fields(account: Account, now: float) -> bytes:
    """Header lines: how many are left, and how long until all are there again."""
    return _fields(account, now, _OPENAI, duration)


def anthropic_fields(account: Account, now: float) -> bytes:
    """The same with the moment in UTC when all are there again."""
    return _fields(account, now, _ANTHROPIC, moment)


def _fields(account: Account, now: float, template: str, spell: Callable[[float], bytes]) -> bytes:
    allowance, terms, lines = account.allowance, account.terms, b""
    if allowance.requests is not None and terms.requests is not None:
        lines = _lines(_told(template, REQUESTS, terms.requests), allowance.requests, now, account.shares, spell)
    if allowance.tokens is not None and terms.tokens is not None:
        lines += _lines(_told(template, TOKENS, terms.tokens), allowance.tokens, now, account.shares, spell)
    return lines


@lru_cache(maxsize=1024)
def _told(template: str, what: str, limit: float) -> bytes:
    return template.format(what, int(limit)).encode()


def _lines(template: bytes, bucket: Bucket, now: float, shares: int, spell: Callable[[float], bytes]) -> bytes:
    left = max(0.0, bucket.now_at(now))
    return template % (int(left * shares), spell(bucket.seconds_until(bucket.capacity)))


def duration(seconds: float) -> bytes:
    """As OpenAI writes it: `17ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return b"%dms" % ceil(seconds * 1e3)
    if seconds < 60:
        return b"%.4gs" % seconds
    minutes, rest = divmod(ceil(seconds), 60)
    return b"%dm%ds" % (minutes, rest)


def moment(seconds: float) -> bytes:
    """So many seconds from now, as RFC 3339 writes it."""
    return (
        (datetime.now(UTC) + timedelta(seconds=min(seconds, _LONGEST_SECONDS))).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    )


def retry_headers(refusal: Refusal) -> Headers:
    """When to try again, in both spellings that the SDKs read."""
    milliseconds = max(1, ceil(refusal.wait_seconds * 1e3))
    return (("retry-after", str(ceil(milliseconds / 1e3))), ("retry-after-ms", str(milliseconds)))
