"""Bodies in and out: JSON only, as vLLM wants it."""

from __future__ import annotations

import msgspec
from aiohttp import web

from backends.api_errors import InvalidBodyError
from router.core import Json


async def read_json(request: web.Request) -> bytes:
    """The body of a request that says it is JSON; InvalidBodyError for one that does not, or ends early."""
    if request.content_type != "application/json":
        raise InvalidBodyError("Unsupported Media Type: Only 'application/json' is allowed")
    try:
        return await request.read()
    except web.RequestPayloadError:
        raise InvalidBodyError("The body ended early, or breaks its framing.") from None


def json_answer(value: Json, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
