"""Endpoints of vLLM that this worker does not serve, and the words in which it says so: better than a bare 404."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from backends.api_errors import ApiError, BadRequestError, NotServedError

CHAT_INSTEAD = "use /v1/chat/completions"
ONE_MODEL = "the model generates text and nothing else"
NO_ADAPTERS = "This worker loads no LoRA adapters; run vLLM for them."

NOT_SERVED: dict[str, tuple[str, str]] = {
    "/v1/responses": ("Responses API", CHAT_INSTEAD),
    "/v1/messages": ("Messages API", CHAT_INSTEAD),
    "/v1/messages/count_tokens": ("Messages API", "use /tokenize"),
    "/v1/embeddings": ("Embeddings API", ONE_MODEL),
    "/v2/embed": ("Embeddings API", ONE_MODEL),
    "/pooling": ("Pooling API", ONE_MODEL),
    "/classify": ("Classification API", ONE_MODEL),
    "/score": ("Score API", ONE_MODEL),
    "/v1/score": ("Score API", ONE_MODEL),
    "/rerank": ("Rerank (Score) API", ONE_MODEL),
    "/v1/rerank": ("Rerank (Score) API", ONE_MODEL),
    "/v2/rerank": ("Rerank (Score) API", ONE_MODEL),
    "/v1/audio/transcriptions": ("Transcriptions API", ONE_MODEL),
    "/v1/audio/translations": ("Translations API", ONE_MODEL),
    "/v1/audio/speech": ("Speech API", ONE_MODEL),
    "/v1/images/generations": ("Images API", ONE_MODEL),
}
"""Path → what is asked for, in vLLM's words, and what to do or why. 400, as a vLLM whose model cannot do it."""

NO_ADAPTER_ROUTES = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
"""404, as a vLLM without --enable-lora, with a reason."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_refused_routes(routes: web.UrlDispatcher) -> None:
    """Register all of them."""
    for path, (name, instead) in NOT_SERVED.items():
        routes.add_post(path, _refuse(BadRequestError, f"The model does not support {name}: {instead}."))
    for path in NO_ADAPTER_ROUTES:
        routes.add_post(path, _refuse(NotServedError, NO_ADAPTERS))


def _refuse(error: type[ApiError], message: str) -> Handler:
    async def handler(_request: web.Request) -> web.StreamResponse:
        raise error(message)

    return handler
