"""What the worker answers when it will not or cannot: vLLM's statuses, types and JSON shape."""

from __future__ import annotations

import msgspec

from router.core import Json


class ApiError(Exception):
    """A request that ends in `{"error": {...}}`.

    `type` is vLLM's class name, `param` the field to change; the message never holds prompt text or a key. Where
    trying again may help, `retry_after_seconds` becomes a header.
    """

    status = 400
    type = "BadRequestError"
    retry_after_seconds: int | None = None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param

    def body(self) -> dict[str, Json]:
        """The JSON value of the answer."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.status}}

    def json(self) -> bytes:
        """The answer's body."""
        return msgspec.json.encode(self.body())


class BadRequestError(ApiError):
    """A field has a value that cannot be served: 400."""


class InvalidBodyError(ApiError):
    """The body has not the form of the endpoint's request: 400, worded as vLLM's validation errors."""

    type = "Bad Request"


class UnknownModelError(ApiError):
    """The model is not served here: 404."""

    status = 404
    type = "NotFoundError"


class NotServedError(ApiError):
    """What is asked for is not served here, whatever the request says: 404."""

    status = 404
    type = "NotFoundError"


class InternalError(ApiError):
    """A fault of the worker: 500."""

    status = 500
    type = "InternalServerError"


class EngineDeadError(InternalError):
    """The engine stopped for good, and /health says so: 500 as vLLM."""


class GenerationFailedError(InternalError):
    """The model failed on this request; others go on: 500."""


class BodyTooLargeError(ApiError):
    """The body is over the server's limit: 413."""

    status = 413
    type = "RequestEntityTooLarge"


class ServerClosingError(ApiError):
    """The worker is draining and takes nothing new: 503."""

    status = 503
    type = "ServiceUnavailableError"
    retry_after_seconds = 1


class QueueOverflowError(ApiError):
    """More requests wait than --max-num-queued-reqs allows: 503."""

    status = 503
    type = "QueueOverflowError"
    retry_after_seconds = 1


class QueuedTokensOverflowError(ApiError):
    """More prompt tokens wait than --max-num-queued-tokens allows: 503."""

    status = 503
    type = "MaxQueuedTokensError"
    retry_after_seconds = 1


def invalid(kind: str, location: str, message: str) -> InvalidBodyError:
    """One validation error in vLLM's words, without the offending input: that may be prompt text."""
    detail = f"{{'type': '{kind}', 'loc': '{location}', 'msg': '{message}'}}"
    return InvalidBodyError(f"1 validation error:\n  {detail}", param=location)


def with_parameter(message: str, parameter: str, value: object = None) -> BadRequestError:
    """A refused value in vLLM's words: the message, then `(parameter=…, value=…)`."""
    shown = f"parameter={parameter}" if value is None else f"parameter={parameter}, value={value}"
    return BadRequestError(f"{message} ({shown})", param=parameter)
