"""Bodies in and out: JSON only, as vLLM wants it."""

from __future__ import annotations

import msgspec
from aiohttp import web

from backends.api_errors import InvalidBodyError
from router.core import Json


async def read_json(request: web.Request) -> bytes:
    """The body of a request that says it is JSON; InvalidBodyError for one that says something else."""
    if request.content_type != "application/json":
        raise InvalidBodyError("Unsupported Media Type: Only 'application/json' is allowed")
    return await request.read()


def json_answer(value: Json, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
