"""Who may use the admin port: everybody where there is no token, else who brings it; probes and scrapes need none."""

from __future__ import annotations

import hmac
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gateway.errors import AdminTokenNeeded

OPEN_PATHS: Final = frozenset(("/livez", "/readyz", "/metrics"))
"""The kubelet and Prometheus ask these without a token; nothing in them is a tenant's."""


def admin_guard(token: str | None) -> Middleware:
    """A middleware that asks for `token` before anything else is looked at, what exists included."""
    expected = f"Bearer {token}".encode() if token is not None else None

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if expected is None or request.raw_path.partition("?")[0] in OPEN_PATHS or _brings(request, expected):
            return await handler(request)
        error = AdminTokenNeeded("This port asks for `Authorization: Bearer TOKEN`, its admin_token.")
        return web.Response(status=error.status, body=error.openai_body(), content_type="application/json")

    return guard


def _brings(request: web.Request, expected: bytes) -> bool:
    given = request.headers.getall("authorization", [])
    return len(given) == 1 and hmac.compare_digest(given[0].encode(errors="surrogateescape"), expected)
