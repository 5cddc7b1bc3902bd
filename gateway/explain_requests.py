"""Explains whole requests offline: finds the model's tokeniser and the tenant's rules, and never fails on bad input."""

from __future__ import annotations

from threading import Lock
from typing import Any

from gateway.errors import GatewayError, ModelNotFound
from gateway.explain import explain_call, read_request
from gateway.model_prompts import ModelPrompts, Seeding, load_model_text, tokenizer_source
from gateway.settings import Config, Model
from gateway.tenants import Tenant
from gateway.wire import Call
from gateway.worker_state import ANY_MODEL, routing_block_tokens
from router.normalise import fold_rules
from router.tokenise import find_smollm2

MEMO_BYTES = 16 * 2**20


def nobody() -> Tenant:
    """Who asks without a configuration: default rules, unsalted, and a request's own `cache_salt` still narrows."""
    return Tenant("", fold=fold_rules("default"))


class Explainer:
    """Explains request bodies for one tenant of a configuration, or for nobody. Safe in several threads."""

    def __init__(self, config: Config | None = None, tenant: Tenant | None = None) -> None:
        self._config, self._tenant = config, tenant or nobody()
        self._models: dict[str, ModelPrompts] = {}
        self._loading = Lock()

    def explain(self, body: bytes) -> dict[str, Any]:
        """What the request is to placement, or `{"error": …}` in words that hold no text of it."""
        try:
            return self._explained(read_request(body))
        except GatewayError as error:
            return {"error": error.message}
        except Exception as error:  # noqa: BLE001 - one odd line must not end a thousand; its text must not show
            return {"error": f"this request cannot be explained ({type(error).__name__})"}

    def _explained(self, call: Call) -> dict[str, Any]:
        if not self._tenant.may_use(call.model):
            raise ModelNotFound("this tenant may not use the model", param="model")
        salt = self._tenant.salt(call.model, client_salt=call.cache_salt, user=call.user)
        prompts = self._prompts(call.model)
        prompt = prompts.scaled(prompts.build(call.source, Seeding(salt, call.model, self._tenant.fold)))
        return explain_call(call, prompt, salt)

    def _prompts(self, model: str) -> ModelPrompts:
        """The model's builder, loaded at its first request."""
        with self._loading:
            name = self._configured_name(model)
            found = self._models.get(name)
            if found is None:
                found = self._models[name] = self._load(name)
            return found

    def _configured_name(self, model: str) -> str:
        """The name that decides on the tokeniser: an adapter's is its base's; without a configuration all are one."""
        if self._config is None:
            return ANY_MODEL
        if model in self._config.models:
            return model
        bases = (name for name, settings in self._config.models.items() if model in settings.adapters)
        return next(bases, ANY_MODEL)

    def _load(self, name: str) -> ModelPrompts:
        if self._config is None:
            return ModelPrompts(load_model_text(name, find_smollm2()), routing_block_tokens(None), MEMO_BYTES)
        settings: Model | None = self._config.models.get(name)
        if settings is None:
            raise ModelNotFound("the configuration has no such model", param="model")
        text = load_model_text(name, tokenizer_source(settings.tokenizer, None))
        return ModelPrompts(text, routing_block_tokens(settings.worker_block_tokens), MEMO_BYTES)
