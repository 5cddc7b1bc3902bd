"""What each model needs to be served: its text handling and its router, made when the model is first seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from gateway.config_checks import tokenizer_path
from gateway.errors import NoBackend
from gateway.fleet import Change, ChangeKind, Fleet
from gateway.policies import router_settings
from gateway.prompts import Prompts, tokenizer_source
from gateway.settings import Model
from gateway.supervise import end
from gateway.worker_state import ANY_MODEL, ServingFacts, Worker
from router.core import Prompt, PromptSource
from router.normalise import FoldRules
from router.router import Router
from router.settings import RouterSettings
from router.tokenise import LoadedModelText

RING_GATHER_SECONDS = 0.2
"""Workers that come and go within it make one ring."""

STANDS_IN = "bytes"
"""The tokeniser that stands in for a model's own."""

log = logging.getLogger("homing.serving")


class Loaded(NamedTuple):
    """How a model's prompts are read: routing block in tokens, and the tokeniser's kind."""

    block_tokens: int
    tokenizer: str


class Serving:
    """Routers and prompts by model; an adapter shares those of its base.

    Belongs to one event loop. Tokenisers are loaded in a thread, so that a model which appears while others are
    being served costs them nothing.
    """

    def __init__(
        self,
        models: Mapping[str, Model],
        fleet: Fleet,
        prompts: Prompts,
        make_router: Callable[[str, RouterSettings], Router] | None = None,
        on_loaded: Callable[[str, LoadedModelText, int], None] | None = None,
    ) -> None:
        """`make_router` makes a model's router; `on_loaded` is told how its prompts are read: text, routing block."""
        self._models = models
        self._policies: Mapping[str, RouterSettings] = {}
        self._make_router = make_router
        self._on_loaded = on_loaded
        self._fleet = fleet
        self._prompts = prompts
        self._routers: dict[str, Router] = {}
        self._loaded: dict[str, Loaded] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        fleet.on_change(self._fleet_changed)

    async def load_all(self) -> None:
        """Load the configured and listed models that are not loaded; TokeniserError when a configured one cannot be."""
        for model in self.names():
            if model not in self._loaded:
                await self._load(model)

    async def close(self) -> None:
        """End what is still being loaded."""
        await end(*self._loading.values())

    def names(self) -> tuple[str, ...]:
        """Base models: the configured ones, then what workers list beyond them."""
        listed = (card.parent or card.id for card in self._fleet.models())
        return tuple(dict.fromkeys((*(name for name in self._models if name != ANY_MODEL), *listed)))

    @property
    def routers(self) -> Mapping[str, Router]:
        """The routers by base model."""
        return self._routers

    def router(self, model: str) -> Router:
        """The router of a model or adapter."""
        base = self._fleet.base_model(model)
        found = self._routers.get(base)
        if found is None:
            settings = self._router_settings(base)
            found = self._make_router(base, settings) if self._make_router is not None else Router(settings)
            found.configure(settings, self._policies)
            self._routers[base] = found
        return found

    def configure(self, models: Mapping[str, Model], policies: Mapping[str, RouterSettings]) -> None:
        """Take in the models' settings and the tenants' own policies by name; routers keep what they have learnt."""
        self._models, self._policies = models, policies
        for base, router in self._routers.items():
            router.configure(self._router_settings(base), policies)

    async def prepare(self, model: str, source: PromptSource, *, salt: str | None, rules: FoldRules) -> Prompt:
        """Both chains of a prompt for a model or adapter that the fleet knows.

        Raises `NoBackend` for one that may exist, but that no worker has listed yet: nothing is made for a name that
        only a client has said.
        """
        base = self._fleet.base_model(model)
        if base not in self._loaded:
            if base not in self.names():
                raise NoBackend("No worker lists this model, but not all workers have listed theirs yet.")
            await self._load(base)
        adapter = model if model != base else None
        prompt = await self._prompts.prepare(base, source, salt=salt, rules=rules, adapter=adapter)
        self._fleet.measured(base, prompt.block_tokens)
        return prompt

    def readable(self) -> Mapping[str, int]:
        """Routing blocks, in tokens, of the loaded models whose prompts their own tokeniser reads."""
        return {model: each.block_tokens for model, each in self._loaded.items() if each.tokenizer != STANDS_IN}

    def reconsider(self, worker: Worker) -> None:
        """A worker's blocks are known now: models that were hashed in others are loaded anew, at the next request.

        Where theirs can be told in the blocks in use, and something is believed in these, they stay.
        """
        for model, loaded in list(self._loaded.items()):
            other = worker.serves(model) and self._fleet.block_tokens(model) != loaded.block_tokens
            if other and not self._may_stay(model, loaded.block_tokens):
                del self._loaded[model]

    def expect(self, worker: str, weight: int) -> None:
        """A worker will join: 0.2 ms for each router now, so that the join itself is cheap."""
        for router in self._routers.values():
            router.expect(worker, weight)

    def learn(self, model: str, prompt: Prompt, prompt_tokens: int) -> None:
        """Take in the worker's own count of a prompt's tokens."""
        self._prompts.observe(self._fleet.base_model(model), prompt, prompt_tokens)

    def describe(self) -> dict[str, dict[str, str | int]]:
        """For /readyz and the log: each loaded model's tokeniser, block and policy."""
        return {
            model: {
                **loaded._asdict(),
                "policy": self.router(model).settings.policy,
            }
            for model, loaded in self._loaded.items()
        }

    def _router_settings(self, base: str) -> RouterSettings:
        return replace(router_settings(self._settings(base)), ring_gather_seconds=RING_GATHER_SECONDS)

    def _may_stay(self, model: str, block_tokens: int) -> bool:
        """Whether what events tell fits into `block_tokens`, and changing would cost what is believed of others."""
        router = self._routers.get(model)
        if router is None or not router.stats().placed:
            return False
        told = [worker.event_block_tokens for worker in self._fleet.workers if worker.serves(model)]
        sizes = [size for size in told if size]
        return bool(sizes) and not any(block_tokens % size for size in sizes)

    def _settings(self, base: str) -> Model | None:
        return self._models.get(base) or self._models.get(ANY_MODEL)

    async def _load(self, base: str) -> None:
        """Load once, however many ask; a task of its own, so that a caller who leaves does not stop it for others."""
        task = self._loading.get(base)
        if task is None:
            task = self._loading[base] = asyncio.create_task(self._load_in_thread(base), name=f"load {base}")
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._loading.pop(base, None)

    async def _load_in_thread(self, base: str) -> None:
        settings, block_tokens = self._settings(base), self._fleet.block_tokens(base)
        configured = settings.tokenizer if settings is not None else None
        path = tokenizer_source(str(tokenizer_path(configured)) if configured else None, self._root(base))
        register = partial(self._prompts.register, base, path, block_tokens, required=configured is not None)
        text = await asyncio.to_thread(register)
        router = self.router(base)
        for worker in self._fleet.workers:
            router.expect(worker.name, worker.backend.weight)
            await asyncio.sleep(0)
        self._loaded[base] = Loaded(block_tokens, text.tokeniser.name)
        if self._on_loaded is not None:
            self._on_loaded(base, text, block_tokens)
        log.info("model is ready to be routed", extra={"fields": {"model": base, **self._loaded[base]._asdict()}})

    def _root(self, base: str) -> str | None:
        card = self._fleet.card(base)
        return card.root if card is not None else None

    def _fleet_changed(self, change: Change) -> None:
        worker = change.worker
        if change.kind in (ChangeKind.LEFT, ChangeKind.RESTARTED):
            for router in self._routers.values():
                router.forget(worker.name)
        elif change.kind is ChangeKind.JOINED:
            self.expect(worker.name, worker.backend.weight)
        elif change.kind is ChangeKind.UP:
            self.reconsider(worker)


def serving_facts(models: Mapping[str, Model]) -> dict[str, ServingFacts]:
    """What the fleet needs to know of each model's settings."""
    return {
        name: ServingFacts(
            max_in_flight=model.max_in_flight,
            prefill_tokens_per_second=model.prefill_tokens_per_second,
            prefill_fixed_seconds=model.prefill_fixed_seconds,
            worker_block_tokens=model.worker_block_tokens,
            salts_messages=model.salts_messages,
        )
        for name, model in models.items()
    }
