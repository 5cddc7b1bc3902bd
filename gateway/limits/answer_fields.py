"""What a limited tenant's answers say of its limits: `x-ratelimit-*`, or `anthropic-ratelimit-*` on /v1/messages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import ceil
from typing import Final

from gateway.errors import Headers
from gateway.limits.account import Account
from gateway.limits.allowance import REQUESTS, TOKENS, Refusal

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
    allowance, shares = account.allowance, account.shares
    requests, tokens = allowance.requests, allowance.tokens
    if requests is None and tokens is None:
        return b""
    values: tuple[int | bytes, ...] = ()
    if requests is not None:
        left = requests.level if requests.at >= now else requests.now_at(now)
        values = (int(left * shares) if left > 0 else 0, spell((requests.capacity - left) / requests.per_second))
    if tokens is not None:
        left = tokens.level if tokens.at >= now else tokens.now_at(now)
        values += (int(left * shares) if left > 0 else 0, spell((tokens.capacity - left) / tokens.per_second))
    return _lines(template, account.terms.requests, account.terms.tokens) % values


@lru_cache(maxsize=1024)
def _lines(template: str, requests: float | None, tokens: float | None) -> bytes:
    limits = ((REQUESTS, requests), (TOKENS, tokens))
    return "".join(template.format(what, int(limit)) for what, limit in limits if limit is not None).encode()


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
