"""A running gateway whose tenants and bounds a test of limits chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from gateway.app import Gateway
from gateway.config import load_secrets
from gateway.settings import Backends, Config, Listen, Model, Probes, Redis, StaticBackend, Timeouts
from gateway.tenant_settings import TenantSettings
from tests.gateway.builders import ENVIRON, key_line
from tests.gateway.running_gateway import Running
from tests.gateway.scripted_worker import ScriptedWorker


def build_tenants(given: Mapping[str, TenantSettings]) -> dict[str, TenantSettings]:
    """Tenants `a` and `b`, their keys `a-key` and `b-key`, unless a test has its own."""
    plain = {name: TenantSettings(keys=[key_line(f"{name}-key")], isolation="shared") for name in ("a", "b")}
    return {**plain, **given}


@asynccontextmanager
async def limited_gateway(
    *workers: ScriptedWorker,
    room: int | None = None,
    queue_seconds: float = 5.0,
    tenants: Mapping[str, TenantSettings] | None = None,
    redis_url: str | None = None,
) -> AsyncIterator[Running]:
    """A gateway of the model `m` before these workers, each with room for `room` requests."""
    static: list[str | StaticBackend] = [
        StaticBackend(url=f"http://127.0.0.1:{worker.port}", name=f"w{number}")
        for number, worker in enumerate(workers, 1)
    ]
    config = Config(
        listen=Listen(port=0, admin_port=0),
        models={"m": Model(backends=Backends(static=static), max_in_flight=room)},
        tenants=build_tenants(tenants or {}),
        salt_secrets={"k1": "env:SALT"},
        timeouts=Timeouts(queue_seconds=queue_seconds, drain_delay_seconds=0, drain_seconds=5.0),
        probes=Probes(interval_seconds=0.5, start_seconds=2.0),
        redis=Redis(url=redis_url, start_seconds=0.5) if redis_url is not None else None,
    )
    async with Gateway(config, load_secrets(config, ENVIRON)) as gateway:
        yield Running(gateway)
