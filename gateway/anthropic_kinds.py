"""What an HTTP status is in Anthropic's dialect: the error type that its clients go by, and 529 for overload."""

from __future__ import annotations

from typing import NamedTuple


class AnthropicKind(NamedTuple):
    """What a status is in Anthropic's dialect."""

    status: int
    type: str


ANTHROPIC_KINDS: dict[int, AnthropicKind] = {
    401: AnthropicKind(401, "authentication_error"),
    403: AnthropicKind(403, "permission_error"),
    404: AnthropicKind(404, "not_found_error"),
    413: AnthropicKind(413, "request_too_large"),
    429: AnthropicKind(429, "rate_limit_error"),
    503: AnthropicKind(529, "overloaded_error"),
    529: AnthropicKind(529, "overloaded_error"),
}
"""By our own status; any other of the caller's fault is `invalid_request_error`, of ours `api_error`."""


def anthropic_kind(status: int) -> AnthropicKind:
    """How Anthropic's clients are told of an error with this status."""
    known = ANTHROPIC_KINDS.get(status)
    if known is not None:
        return known
    callers = 400 <= status < 500
    return AnthropicKind(status, "invalid_request_error" if callers else "api_error")
