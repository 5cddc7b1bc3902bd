"""The worker's HTTP server: routes, and what holds for all of them (errors, keys, request ids)."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from backends.api_errors import ApiError, BodyTooLargeError, InternalError
from backends.exchange.pull import BLOCKS_PATH
from backends.exchange.routes import add_cache_routes
from backends.generate import generate
from backends.http_bodies import json_answer
from backends.http_server import QuietRunner, log_fault
from backends.openai_wire import Endpoint
from backends.refused_routes import add_refused_routes
from backends.service_routes import add_service_routes
from backends.serving import Worker


def build_app(worker: Worker) -> web.Application:
    """The application; without `handler_cancellation` in its runner, clients that leave are served to the end."""
    settings = worker.settings
    middlewares = [errors(settings.body_limit_bytes)]
    if settings.api_keys:
        middlewares.append(only_with_key(settings.api_keys))
    app = web.Application(client_max_size=settings.body_limit_bytes, middlewares=middlewares)
    app.router.add_post("/v1/chat/completions", partial(generate, worker, Endpoint.CHAT))
    app.router.add_post("/v1/completions", partial(generate, worker, Endpoint.COMPLETIONS))
    add_service_routes(app.router, worker)
    add_refused_routes(app.router)
    add_cache_routes(app.router, worker)
    app.on_response_prepare.append(partial(_common_headers, mint=settings.mint_request_ids))
    return app


def build_runner(worker: Worker, *, shutdown_seconds: float) -> web.AppRunner:
    """A runner whose cleanup lets open requests finish for up to `shutdown_seconds`."""
    return QuietRunner(build_app(worker), handler_cancellation=True, shutdown_timeout=shutdown_seconds)


def errors(body_limit_bytes: int) -> Middleware:
    """A middleware that turns every exception into vLLM's JSON; a traceback goes to the log, never to the client."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ApiError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            return _refusal(BodyTooLargeError(f"The body is larger than {body_limit_bytes} bytes."))
        except web.HTTPException as raised:
            allow = {name: value for name, value in raised.headers.items() if name == "Allow"}
            answer = json_answer({"detail": raised.reason}, raised.status)
            answer.headers.update(allow)
            return answer
        except Exception as fault:  # noqa: BLE001 - the border
            log_fault(request, fault)
            return _refusal(InternalError("The worker failed on this request."))

    return middleware


def only_with_key(keys: tuple[str, ...]) -> Middleware:
    """A middleware that wants `Authorization: Bearer KEY` on /v1, as vLLM; probes and metrics stay open.

    Peers that ask for blocks have a token of their own.
    """
    digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.startswith("/v1") or request.path == BLOCKS_PATH or request.method == "OPTIONS":
            return await handler(request)
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        given = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        known = any(hmac.compare_digest(given, digest) for digest in digests)
        if scheme.lower() != "bearer" or not known:
            return json_answer({"error": "Unauthorized"}, 401)
        return await handler(request)

    return middleware


def _refusal(error: ApiError) -> web.Response:
    answer = json_answer(error.body(), error.status)
    if error.retry_after_seconds is not None:
        answer.headers["Retry-After"] = str(error.retry_after_seconds)
    return answer


async def _common_headers(request: web.Request, response: web.StreamResponse, *, mint: bool) -> None:
    """X-Request-Id goes back on every answer, or a new one if asked for; Server tells no versions."""
    response.headers["Server"] = "homing"
    request_id = request.headers.get("X-Request-Id") or (uuid.uuid4().hex if mint else None)
    if request_id is not None:
        response.headers["X-Request-Id"] = request_id
