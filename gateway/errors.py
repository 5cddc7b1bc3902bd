"""Every error the gateway itself answers with: one tree, each knowing its status, type, code and retry hint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import msgspec

from gateway.anthropic_kinds import AnthropicKind, anthropic_kind

Headers = tuple[tuple[str, str], ...]
"""Response headers in lower case, as (name, value) pairs."""

DO_NOT_RETRY: Headers = (("x-should-retry", "false"),)
"""openai-python obeys this above everything else; without it 408, 409, 429 and 5xx are tried again."""


class GatewayError(Exception):
    """An answer in the OpenAI error shape.

    `message` is shown to the caller: it names the place and the fix and never quotes a key or a prompt. `param` is
    the request field at fault. `headers` come on top of the class's own `retry_hint`.
    """

    situation: ClassVar[str] = "unexpected fault inside the gateway"
    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = "internal_error"
    retry_hint: ClassVar[Headers] = ()

    def __init__(self, message: str, *, param: str | None = None, headers: Headers = ()) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers: Headers = (*self.retry_hint, *headers)

    def openai_body(self) -> bytes:
        """The JSON body `{"error": {"message", "type", "param", "code"}}`."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    def in_band_event(self) -> bytes:
        """The server-sent event that ends a stream whose head is already with the caller (no `[DONE]` follows)."""
        error = {"message": self.message, "type": self.type, "code": self.code}
        return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


class InvalidRequest(GatewayError):
    """Malformed JSON, a missing field, or a field with a value that cannot be."""

    situation = "malformed request or unknown field value"
    status = 400
    type = "invalid_request_error"
    code: ClassVar[str | None] = None
    retry_hint = DO_NOT_RETRY


class ContextLengthExceeded(InvalidRequest):
    """The prompt and the asked output do not fit the model."""

    situation = "prompt longer than the model takes"
    code = "context_length_exceeded"


class InvalidApiKey(InvalidRequest):
    """No key, or one that belongs to nobody: the two look the same."""

    situation = "no key or an unknown one"
    status = 401
    code = "invalid_api_key"


class AdminTokenNeeded(InvalidRequest):
    """The admin port has a token, and the request does not bring it."""

    situation = "admin port asked without its token"
    status = 401
    code = "admin_token_needed"


class ModelNotFound(InvalidRequest):
    """An unknown model, or one this tenant may not use: the two look the same, so nobody can probe for names."""

    situation = "unknown model, or not this tenant's"
    status = 404
    code = "model_not_found"


class EndpointNotServed(InvalidRequest):
    """The worker has no such endpoint: it is an older one, or another program."""

    situation = "endpoint that the model's workers do not serve"
    status = 404
    code = "endpoint_not_served"


class WorkerRefused(InvalidRequest):
    """A worker's refusal that is told in band, because heartbeats have taken the head along."""

    situation = "worker refused a stream whose heartbeats are under way (in band)"
    code = "worker_refused"


class UnknownPath(InvalidRequest):
    """A path outside the allow-list; nothing else ever reaches a worker."""

    situation = "path outside the allow-list"
    status = 404
    code = "unknown_url"


class ChangesOff(InvalidRequest):
    """A change of the fleet over an admin port that may not make any, or by a page in a browser."""

    situation = "change of the fleet where `listen.admin_changes` is off, or from a page in a browser"
    status = 403
    code = "changes_off"


class NoSuchWorker(InvalidRequest):
    """A change of a worker that is not, or no longer, in the fleet."""

    situation = "change of a worker that there is not"
    status = 404
    code = "no_such_worker"


class WorkerExists(InvalidRequest):
    """A worker that would be added under a name or at an address that another one has."""

    situation = "added worker whose name or address is taken"
    status = 409
    code = "worker_exists"


class MethodNotAllowed(InvalidRequest):
    """A known path asked with a method it does not have; `headers` carries `allow`."""

    situation = "wrong method"
    status = 405


class RequestTimeout(InvalidRequest):
    """The request's head or body came too slowly, or stopped in the middle."""

    situation = "slow or cut request"
    status = 408


class RequestTooLarge(InvalidRequest):
    """The body is over the limit, as sent or decoded."""

    situation = "body too large"
    status = 413
    code = "request_too_large"


class HeadTooLarge(InvalidRequest):
    """The request line, a header field or the whole head is longer than is read here."""

    situation = "head too large"
    status = 431
    code = "head_too_large"


class UnsupportedEncoding(InvalidRequest):
    """A Content-Encoding that is not spoken here, or several stacked."""

    situation = "encoding not spoken"
    status = 415


class UnsupportedVersion(InvalidRequest):
    """A request line that asks for anything but HTTP/1.0 or HTTP/1.1."""

    situation = "HTTP version not spoken"
    status = 505


class RateLimited(GatewayError):
    """The tenant takes more by the minute, or at a time, than its limits allow; `headers` say when to try again."""

    situation = "over the tenant's requests or tokens a minute, or its concurrency; over its share of a full fleet"
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class QuotaSpent(GatewayError):
    """The tenant's budget is spent; trying again before the next period is in vain."""

    situation = "budget spent"
    status = 429
    type = "insufficient_quota"
    code = "insufficient_quota"
    retry_hint = DO_NOT_RETRY


class LimitsUnavailable(GatewayError):
    """Redis, which knows what the tenant took, is away, and the tenant's limits are set to let nobody by unseen."""

    situation = "Redis away, for a tenant with `when_redis_is_away: closed`"
    status = 503
    code = "limits_unavailable"
    retry_hint = (("retry-after", "1"),)


class NoBackend(GatewayError):
    """No worker of this model is ready, or all are at their bound."""

    situation = "no ready backend, or all over their bound"
    status = 503
    code = "no_backend"
    retry_hint = (("retry-after", "1"),)


class Quarantined(GatewayError):
    """Two workers died of requests with this prompt; no other is given it for a while."""

    situation = "prompt that two workers died of"
    status = 503
    code = "quarantined"
    retry_hint = DO_NOT_RETRY


class TooManyConnections(GatewayError):
    """As many connections as the gateway may have, each with a request under way."""

    situation = "over `limits.connections`, or over the process's open files, and nobody idles"
    status = 503
    code = "too_many_connections"
    retry_hint = (("retry-after", "1"),)


class IsolationUnavailable(GatewayError):
    """No salt can be made for this tenant: fail closed, never forward unsalted."""

    situation = "no isolation salt for the tenant"
    status = 503
    code = "isolation_unavailable"
    retry_hint = DO_NOT_RETRY


class UpstreamFailed(GatewayError):
    """The worker refused, broke off or answered garbage, and no other could be tried."""

    situation = "worker refused or broke before the first byte (after retries); in-band when after it"
    status = 502
    code = "upstream_error"


class UpstreamTimedOut(GatewayError):
    """The worker accepted the request and did not answer in time."""

    situation = "first token too late"
    status = 504
    code = "upstream_timeout"


class DeadlinePassed(GatewayError):
    """The time that the caller gave its request is over."""

    situation = "over the request's own `x-request-timeout`; in-band when after the first byte"
    status = 504
    code = "deadline_passed"
    retry_hint = DO_NOT_RETRY


class GatewayShutdown(GatewayError):
    """The gateway leaves: its grace is over for streams that are still open."""

    situation = "gateway shuts down before the answer is complete"
    status = 503
    code = "gateway_shutdown"
    retry_hint = (("retry-after", "1"),)


class Row(NamedTuple):
    """One line of the error table in the docs."""

    situation: str
    status: int
    type: str
    code: str | None
    retry_hint: Headers
    anthropic: AnthropicKind


def _family(root: type[GatewayError]) -> Iterator[type[GatewayError]]:
    yield root
    for child in root.__subclasses__():
        yield from _family(child)


TABLE: tuple[Row, ...] = tuple(
    Row(error.situation, error.status, error.type, error.code, error.retry_hint, anthropic_kind(error.status))
    for error in _family(GatewayError)
)
"""What the docs' error table is generated from: every class of this file."""
