"""Explains whole requests offline: finds the model's tokeniser and the tenant's rules, and never fails on bad input."""

from __future__ import annotations

from threading import Lock
from typing import Any

from gateway.errors import GatewayError, ModelNotFound
from gateway.explain import explain_call, read_request
from gateway.model_prompts import ModelPrompts, Seeding, load_model_text, tokenizer_source
from gateway.rewrites.apply import rewrite_call
from gateway.rewrites.rules import Rewrites
from gateway.settings import Config, Model
from gateway.tenants import Tenant
from gateway.wire import Call
from gateway.worker_state import ANY_MODEL, routing_block_tokens
from router.normalise import fold_rules
from router.tokenise import TokeniserError, find_smollm2

MEMO_BYTES = 16 * 2**20


def nobody() -> Tenant:
    """Who asks without a configuration: default rules, unsalted, and a request's own `cache_salt` still narrows."""
    return Tenant("", fold=fold_rules("default"))


class Explainer:
    """Explains request bodies for one tenant of a configuration, or for nobody. Safe in several threads.

    `rewrites` are tried in place of the tenant's own.
    """

    def __init__(
        self, config: Config | None = None, tenant: Tenant | None = None, rewrites: Rewrites | None = None
    ) -> None:
        self._config, self._tenant = config, tenant or nobody()
        self._rewrites = self._tenant.rewrites if rewrites is None else rewrites
        self._models: dict[str, ModelPrompts] = {}
        self._loading = Lock()

    def explain(self, body: bytes) -> dict[str, Any]:
        """What the request is to placement, or `{"error": …}` in words that hold no text of it."""
        try:
            return self._explained(read_request(body))
        except GatewayError as error:
            return {"error": error.message}
        except TokeniserError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 - one odd line must not end a thousand; its text must not show
            return {"error": f"this request cannot be explained ({type(error).__name__})"}

    def _explained(self, call: Call) -> dict[str, Any]:
        if not self._tenant.may_use(call.model):
            raise ModelNotFound("this tenant may not use the model", param="model")
        self._tenant.check_partition(call.partition)
        received = call.body
        call, applied = rewrite_call(call, self._rewrites)
        salt = self._tenant.salt(call.model, client_salt=call.cache_salt, user=call.user)
        base = self._base_model(call.model)
        adapter = call.model if base != call.model else None
        prompts = self._prompts(base)
        prompt = prompts.build(call.source, Seeding(salt, base, self._tenant.fold, adapter))
        told = explain_call(call, prompts.scaled(prompt), salt, received, applied)
        return told if self._tenant.caveat is None else {**told, "caveat": self._tenant.caveat}

    def _base_model(self, model: str) -> str:
        """The model that an adapter belongs to by the configuration, or the model itself."""
        models = self._config.models if self._config is not None else {}
        bases = (name for name, settings in models.items() if model in settings.adapters and model not in models)
        return next(bases, model)

    def _prompts(self, model: str) -> ModelPrompts:
        """The model's builder, loaded at its first request; without a configuration one serves every name."""
        name = ANY_MODEL if self._config is None or model not in self._config.models else model
        with self._loading:
            found = self._models.get(name)
            if found is None:
                found = self._models[name] = self._load(name)
            return found

    def _load(self, name: str) -> ModelPrompts:
        if self._config is None:
            return ModelPrompts(load_model_text(name, find_smollm2()), routing_block_tokens(None), MEMO_BYTES)
        settings: Model | None = self._config.models.get(name)
        if settings is None:
            raise ModelNotFound("the configuration has no such model", param="model")
        path = tokenizer_source(settings.tokenizer, None)
        text = load_model_text(name, path, required=path is not None)
        return ModelPrompts(text, routing_block_tokens(settings.worker_block_tokens), MEMO_BYTES)
