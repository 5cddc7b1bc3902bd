"""What a new configuration changes in a gateway that runs: looked at before, then brought in in one go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gateway.config_checks import Secrets, tokenizer_path
from gateway.config_source import ConfigError
from gateway.discovery.static import listed_backends, static_backends
from gateway.events.service import Events
from gateway.fleet import Fleet
from gateway.logs import RequestLog
from gateway.membership import Membership
from gateway.metrics import Metrics
from gateway.model_prompts import load_model_text
from gateway.policies import tenant_policies
from gateway.prewarm.prewarmer import Prewarmer
from gateway.proxy import Proxy
from gateway.serving import Serving, serving_facts
from gateway.settings import Config, Model
from gateway.tenants import Tenants
from gateway.upstream import Timeouts, Upstream
from gateway.worker_state import ANY_MODEL, Backend
from router.tokenise import TokeniserError


class Moves(NamedTuple):
    """What becomes of the workers: names to let go, workers to take in, and those of which only numbers change."""

    leave: tuple[str, ...]
    join: tuple[Backend, ...]
    revise: tuple[Backend, ...]


def plan_moves(before: Config, after: Config, wanted: Iterable[Backend], there: Mapping[str, Backend]) -> Moves:
    """From the workers of one configuration to those of the next (`wanted`), in a fleet as it is `there`.

    What was added by hand stays, and so does what was removed by hand while its entry is the same. A worker that moves
    or serves other models leaves and joins anew. ValueError when a new worker's name or address is taken.
    """
    old, new = _entries(before), _entries(after)
    leave = {name for name in old if name in there and name not in new}
    join, revise = [], []
    for backend in wanted:
        name, present = backend.name, there.get(backend.name)
        if present is None:
            join += [backend] if old.get(name) != new[name] else []
        elif name in old and present != backend and not _same_place(present, backend):
            leave.add(name)
            join.append(backend)
        elif name in old and present != backend:
            revise.append(backend)
        elif present != backend:
            raise ValueError(f"{name} is the name of a worker at {present.address.url} that was added by hand")
    _refuse_taken(join, {name: each for name, each in there.items() if name not in leave})
    return Moves(tuple(leave), tuple(join), tuple(revise))


def upstream_timeouts(config: Config) -> Timeouts:
    """Of the configured timeouts those for talking to workers."""
    told = config.timeouts
    return Timeouts(told.connect_seconds, told.first_byte_seconds, told.whole_answer_seconds, told.idle_seconds)


def label_values(config: Config) -> dict[str, Iterable[str]]:
    """The tenants and models, adapters included, that may appear in metrics."""
    adapters = (adapter for model in config.models.values() for adapter in model.adapters)
    return {"tenants": config.tenants, "models": (*(set(config.models) - {ANY_MODEL}), *adapters)}


@dataclass(frozen=True, slots=True)
class Applier:
    """The rooms that hold settings, and how each takes new ones."""

    tenants: Tenants
    fleet: Fleet
    serving: Serving
    events: Events
    membership: Membership
    upstream: Upstream
    prewarmer: Prewarmer
    proxy: Proxy
    metrics: Metrics
    request_log: RequestLog | None

    def brief(self, config: Config) -> None:
        """At start: what is no argument of anybody's."""
        self.serving.configure(config.models, tenant_policies(config.tenants))
        self.metrics.know(**label_values(config))

    async def check(self, before: Config, config: Config, secrets: Secrets) -> None:
        """Raise `ConfigError` for what only a running gateway can tell, and lay out what will be needed."""
        await _check_tokenisers({name: each for name, each in config.models.items() if name not in before.models})
        try:
            moves = self._moves(before, config, secrets)
        except ValueError as error:
            raise ConfigError(str(error), path=("models",), hint="remove it on the admin port first") from None
        for backend in moves.join:
            self.serving.expect(backend.name, backend.weight)
            await asyncio.sleep(0)

    def apply(self, before: Config, config: Config, secrets: Secrets) -> None:
        """Bring it in. Tenants come last: nobody may ask for what is not there yet."""
        moves = self._moves(before, config, secrets)
        self.brief(config)
        self.fleet.configure(serving_facts(config.models))
        self.events.configure(config.models)
        self.membership.configure(config.models, secrets.worker_keys)
        self._move(moves)
        self.upstream.configure(upstream_timeouts(config))
        self.proxy.configure(
            body_limit_bytes=config.limits.body_bytes, heartbeat_seconds=config.timeouts.stream_heartbeat_seconds
        )
        self._log_by(config)
        self.tenants.become(
            config.tenants, secrets.digests, secrets.salt_key, expiries=secrets.expiries, revoked=secrets.revoked
        )
        self.prewarmer.pin(self.serving, self.tenants.named, config.tenants)

    def _moves(self, before: Config, config: Config, secrets: Secrets) -> Moves:
        there = {worker.name: worker.backend for worker in self.fleet.workers}
        return plan_moves(before, config, static_backends(config.models, secrets.worker_keys), there)

    def _move(self, moves: Moves) -> None:
        for name in moves.leave:
            self.fleet.remove(name)
        for backend in moves.revise:
            self.fleet.revise(backend)
        for backend in moves.join:
            self.fleet.add(backend)

    def _log_by(self, config: Config) -> None:
        logger = logging.getLogger("homing")
        if logger.level != logging.NOTSET:  # set up by `homing serve`; a test's own logging is left alone
            logger.setLevel(config.log.level.upper())
        if self.request_log is not None:
            self.request_log.configure(config.log)


def _entries(config: Config) -> dict[str, Backend]:
    """The workers as they stand in a configuration, their keys by reference."""
    references = {listed.entry.api_key: listed.entry.api_key for listed in listed_backends(config.models)}
    return {
        each.name: each
        for each in static_backends(config.models, {name: name for name in references if name is not None})
    }


def _same_place(before: Backend, after: Backend) -> bool:
    return (before.address, before.models) == (after.address, after.models)


def _refuse_taken(join: Iterable[Backend], staying: Mapping[str, Backend]) -> None:
    taken = {each.address: name for name, each in staying.items()}
    for backend in join:
        if backend.address in taken:
            raise ValueError(f"{backend.address.url} is a worker already, added by hand as {taken[backend.address]}")


async def _check_tokenisers(models: Mapping[str, Model]) -> None:
    """A tokeniser that cannot be read must be found out before its model is offered."""
    for name, model in models.items():
        if model.tokenizer is not None:
            load = partial(load_model_text, name, tokenizer_path(model.tokenizer), required=True)
            try:
                await asyncio.to_thread(load)
            except (TokeniserError, OSError) as error:
                raise ConfigError(str(error), path=("models", name, "tokenizer")) from None
