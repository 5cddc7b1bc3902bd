"""The endpoints beside generation: health, load, models, metrics, tokenising, and the two for developers."""

from __future__ import annotations

import time
import uuid

from aiohttp import web
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from backends.api_errors import invalid
from backends.cache_fields import CACHE_FIELDS
from backends.events.service import event_sources, event_summary
from backends.http_bodies import json_answer, read_json
from backends.openai_wire import chat_source
from backends.request_fields import Fields, decode_object
from backends.serving import Worker
from router.core import Json, PromptSource


def add_service_routes(routes: web.UrlDispatcher, worker: Worker) -> None:
    """Register all of them; the developers' two only when asked for, as vLLM.

    Where KV events are published, /server_info says so, as SGLang's does without being asked.
    """
    handlers = ServiceHandlers(worker)
    for path, handler in (
        ("/health", handlers.health),
        ("/load", handlers.load),
        ("/version", handlers.version),
        ("/metrics", handlers.metrics),
        ("/v1/models", handlers.models),
        ("/kv_event_sources", handlers.kv_event_sources),
    ):
        routes.add_get(path, handler)
    routes.add_get("/ping", handlers.health)
    routes.add_post("/ping", handlers.health)
    routes.add_post("/tokenize", handlers.tokenize)
    routes.add_post("/detokenize", handlers.detokenize)
    if worker.settings.dev_routes:
        routes.add_post("/reset_prefix_cache", handlers.reset_prefix_cache)
    if worker.settings.dev_routes or worker.events.config is not None:
        routes.add_get("/server_info", handlers.server_info)


class ServiceHandlers:
    """One method per endpoint."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._started = int(time.time())

    async def health(self, _request: web.Request) -> web.Response:
        """Empty 200 while the engine takes requests, else empty 503."""
        healthy = self._worker.engine.alive and not self._worker.draining
        return web.Response(status=200 if healthy else 503)

    async def load(self, _request: web.Request) -> web.Response:
        """Generating requests being served; vLLM counts only with --enable-server-load-tracking."""
        return json_answer({"server_load": self._worker.in_flight})

    async def version(self, _request: web.Request) -> web.Response:
        """The worker's own version."""
        return json_answer({"version": self._worker.settings.version})

    async def metrics(self, _request: web.Request) -> web.Response:
        """Prometheus text."""
        return web.Response(body=self._worker.metrics.text(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def models(self, _request: web.Request) -> web.Response:
        """A card for every served name."""
        cards = [self._card(name) for name in self._worker.settings.served_names]
        return json_answer({"object": "list", "data": cards})

    def _card(self, name: str) -> dict[str, Json]:
        created = int(time.time())
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        return {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",  # gateways tell dialects apart by it
            "root": self._worker.settings.root,
            "parent": None,
            "max_model_len": self._worker.settings.max_model_tokens,
            "permission": [permission],
            "cache_fields": CACHE_FIELDS,
        }

    async def tokenize(self, request: web.Request) -> web.Response:
        """Token ids of a chat or of a text."""
        fields = Fields(decode_object(await read_json(request)))
        self._worker.require_model(fields.text("model"))
        if fields.value("messages") is not None:
            source = chat_source(fields)
        else:
            source = PromptSource(prompt=_single_text(fields))
        prompts = self._worker.prompts
        ids = await prompts.ids(source, add_special_tokens=fields.flag("add_special_tokens", source.messages is None))
        texts = None
        if fields.flag("return_token_strs", False):
            texts = [prompts.text.tokeniser.decode([token]) for token in ids]
        return json_answer(
            {"count": len(ids), "max_model_len": prompts.max_model_tokens, "tokens": list(ids), "token_strs": texts}
        )

    async def detokenize(self, request: web.Request) -> web.Response:
        """The text of token ids."""
        fields = Fields(decode_object(await read_json(request)))
        self._worker.require_model(fields.text("model"))
        if fields.value("tokens") is None:
            raise invalid("missing", "body.tokens", "Field required")
        prompts = self._worker.prompts
        ids = await prompts.ids(PromptSource(prompt=fields.integers("tokens")))
        return json_answer({"prompt": prompts.text.tokeniser.decode(list(ids))})

    async def reset_prefix_cache(self, request: web.Request) -> web.Response:
        """Forget all cached blocks; false, and nothing forgotten, while any is in use.

        vLLM's parameters: `reset_running_requests` has running requests start anew, `reset_external` empties the tiers.
        """
        done = await self._worker.engine.reset_prefix_cache(
            preempt=_query_flag(request, "reset_running_requests"), external=_query_flag(request, "reset_external")
        )
        return json_answer({"success": done})

    async def kv_event_sources(self, _request: web.Request) -> web.Response:
        """Where KV events are published, as vLLM says it; an empty object when nowhere."""
        return json_answer(event_sources(self._worker.events))

    async def server_info(self, _request: web.Request) -> web.Response:
        """How the worker was started; no keys in it."""
        settings = self._worker.settings
        return json_answer(
            {
                "model": settings.root,
                "served_model_name": list(settings.served_names),
                "max_model_len": settings.max_model_tokens,
                "block_size": settings.block_tokens,
                "enable_prefix_caching": settings.prefix_caching,
                "uptime_seconds": int(time.time()) - self._started,
                "kv_events": event_summary(self._worker.events, settings.block_tokens),
            }
        )


def _query_flag(request: web.Request, name: str) -> bool:
    """A boolean as FastAPI reads one; false when absent."""
    text = request.query.get(name, "false").lower()
    if text in ("true", "1", "yes", "on", "t", "y"):
        return True
    if text in ("false", "0", "no", "off", "f", "n"):
        return False
    raise invalid("bool_parsing", f"query.{name}", "Input should be a valid boolean, unable to interpret input")


def _single_text(fields: Fields) -> str:
    """The `prompt` of a /tokenize request: one text, which may be empty."""
    prompt = fields.value("prompt")
    if isinstance(prompt, str):
        return prompt
    if prompt is None:
        raise invalid("missing", "body.prompt", "Field required")
    raise invalid("string_type", "body.prompt", "Input should be a valid string")
