"""The stage of a fault test: fault-injection workers, gateways and Redis as processes, and what they leave behind."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.live.processes import Child, Command, end, fetch, free_ports, start, until_ready
from tests.end_to_end.redis_server import RedisServer
from tests.faults.client import KEYS, Client
from tests.faults.modes import MODEL
from tests.faults.row import Row

Change = Mapping[str, Any]


class FaultWorker:
    """A worker process: told how to behave, killed, frozen, started again at the same address."""

    def __init__(self, name: str, directory: Path, **behaviour: Any) -> None:
        self.name = name
        self.port, self.control_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = directory / f"{name}-{self.port}.attempts"
        self.behaviour = behaviour
        self._output = directory / f"{name}-{self.port}.out"
        self._child: Child | None = None

    async def start(self) -> None:
        """Start, as last told to behave, and wait until it answers."""
        ports = ["--port", str(self.port), "--control-port", str(self.control_port)]
        arguments = [sys.executable, "-m", "tests.faults.worker", *ports, "--log", str(self.log)]
        told = ["--set", json.dumps(self.behaviour)]
        ready = f"tcp://127.0.0.1:{self.control_port}"
        self._child = await start(Command(self.name, [*arguments, *told], ready, self._output))
        await until_ready(self._child)

    async def set(self, **behaviour: Any) -> dict[str, Any]:
        """Change how it behaves from now on; its state."""
        self.behaviour = {**self.behaviour, **behaviour}
        return await self._tell(behaviour)

    async def state(self) -> dict[str, Any]:
        return await self._tell({})

    async def kill(self) -> None:
        """SIGKILL, noted in its log: what it was at work on has ended."""
        if self._child is not None:
            at = time.monotonic()
            await self._child.kill()
            self._note("died", at)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    def freeze(self) -> None:
        """SIGSTOP: it accepts connections and does nothing."""
        assert self._child is not None
        self._note("frozen", time.monotonic())
        self._child.signal_group(signal.SIGSTOP)

    def thaw(self) -> None:
        if self._child is not None:
            self._child.signal_group(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.process.returncode is None

    async def stop(self) -> None:
        if self._child is not None:
            self.thaw()
            await end(self._child)

    async def _tell(self, behaviour: Change) -> dict[str, Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.control_port)
        writer.write(json.dumps(dict(behaviour)).encode() + b"\n")
        line = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        return dict(json.loads(line))

    def _note(self, what: str, at: float) -> None:
        with self.log.open("ab") as sink:
            sink.write(json.dumps({"t": at, what: True}).encode() + b"\n")


class GatewayProcess:
    """`homing serve` on ports of its own."""

    def __init__(self, directory: Path, config: Change, port: int | None = None) -> None:
        self.port, self.admin_port = free_ports(2)
        self.port = port or self.port
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        self.log = directory / f"gateway-{self.port}.log"
        self._directory = directory
        self._config = directory / f"gateway-{self.port}.yaml"
        listen = {"port": self.port, "admin_port": self.admin_port, "admin_changes": True}
        self._config.write_text(yaml.safe_dump({**config, "listen": listen}))
        self.child: Child | None = None

    async def start(self, *, wait: bool = True) -> None:
        arguments = [sys.executable, "-m", "gateway", "serve", "--config", str(self._config)]
        self.child = await start(Command("gateway", arguments, f"{self.admin}/readyz", self.log))
        if wait:
            await until_ready(self.child)

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.process.pid

    async def ready(self) -> bool:
        return (await fetch(f"{self.admin}/readyz"))[0] == 200

    async def readyz(self) -> dict[str, Any]:
        return dict(json.loads((await fetch(f"{self.admin}/readyz"))[1] or b"{}"))

    async def metrics(self) -> str:
        """The page as it is; kept, for the search after canaries."""
        page = (await fetch(f"{self.admin}/metrics"))[1].decode()
        (self._directory / f"metrics-{self.port}.txt").write_text(page)
        return page

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of the series that have these labels."""
        marks = [f'{key}="{value}"' for key, value in labels.items()]
        lines = (line for line in (await self.metrics()).splitlines() if line.startswith((f"{name}{{", f"{name} ")))
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(mark in line for mark in marks))

    async def tell(self, method: str, path: str, body: Change | None = None) -> int:
        return (await fetch(f"{self.admin}{path}", method, json.dumps(body).encode() if body else b""))[0]

    def terminate(self) -> None:
        assert self.child is not None
        self.child.signal_group(signal.SIGTERM)

    async def ended(self, seconds: float = 30.0) -> int:
        """The exit code."""
        assert self.child is not None
        return await asyncio.wait_for(self.child.process.wait(), seconds)

    async def kill(self) -> None:
        if self.child is not None:
            await self.child.kill()

    async def stop(self) -> None:
        if self.child is not None:
            if self.child.process.returncode is None:
                with suppress(Exception):
                    await self.metrics()
            await end(self.child)


@dataclass
class Stage:
    """One test's processes, in one directory; everything is ended when the test is over."""

    directory: Path
    row: Row
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    workers: list[FaultWorker] = field(default_factory=list)

    async def start_workers(self, count: int, **behaviour: Any) -> list[FaultWorker]:
        """So many more; all of them."""
        fresh = [FaultWorker(f"w{len(self.workers) + n}", self.directory, **behaviour) for n in range(count)]
        for worker in fresh:
            self.stack.push_async_callback(worker.stop)
        self.workers += fresh
        await asyncio.gather(*(worker.start() for worker in fresh))
        return self.workers

    async def gateway(self, *, start: bool = True, port: int | None = None, **changes: Any) -> GatewayProcess:
        """A gateway over the workers; `changes` are merged into the configuration, section by section."""
        gateway = GatewayProcess(self.directory, self.config(**changes), port)
        self.stack.push_async_callback(gateway.stop)
        if start:
            await gateway.start()
        return gateway

    def config(self, **changes: Any) -> dict[str, Any]:
        """Two tenants with limits out of the way, one model over all workers; times scaled for tests."""
        salt = self.directory / "salt"
        if not salt.exists():  # gateways of one stage share it, as replicas do
            salt.write_text(secrets.token_hex(32))
        static = [{"name": worker.name, "url": worker.url} for worker in self.workers]
        config: dict[str, Any] = {
            "salt_secrets": {"k1": f"file:{salt}"},
            "models": {MODEL: {"backends": {"static": static}}},
            "tenants": {name: tenant_of(key) for name, key in KEYS.items()},
            "probes": {"interval_seconds": 0.25, "timeout_seconds": 0.5, "start_seconds": 2.0},
            "timeouts": {"first_byte_seconds": 2.0, "idle_seconds": 1.0, "drain_delay_seconds": 0.2,
                         "drain_seconds": 20},
            "log": {"level": "debug", "format": "json"},
            "prewarm": {"enabled": False},
        }  # fmt: skip
        return merged(config, changes)

    def client(self, gateway: GatewayProcess | int, tenant: str = "alpha", **options: Any) -> Client:
        port = gateway if isinstance(gateway, int) else gateway.port
        client = Client(port, tenant, errors_file=self.directory / "error-bodies", **options)
        self.stack.callback(client.close)
        return client

    @contextmanager
    def redis(self) -> Iterator[RedisServer]:
        """A server that is not running yet."""
        server = RedisServer(self.directory)
        try:
            yield server
        finally:
            server.thaw()
            server.kill()

    def attempts(self) -> list[dict[str, Any]]:
        """Every line of every worker's log so far, with the worker's name."""
        lines: list[dict[str, Any]] = []
        for worker in self.workers:
            for line in worker.log.read_text().splitlines():
                lines.append({"worker": worker.name, **json.loads(line)})
        return lines


def tenant_of(key: str, **more: Any) -> dict[str, Any]:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"keys": [f"sha256:{digest}"], "models": [MODEL], **more}


def merged(config: dict[str, Any], changes: Change) -> dict[str, Any]:
    """`changes` on top, mapping by mapping."""
    for name, value in changes.items():
        below = config.get(name)
        config[name] = merged(dict(below), value) if isinstance(below, dict) and isinstance(value, dict) else value
    return config


@asynccontextmanager
async def a_stage(directory: Path, row: Row) -> AsyncIterator[Stage]:
    """A stage that is cleared afterwards, whatever happened on it."""
    stage = Stage(directory, row)
    async with stage.stack:
        yield stage


async def until(condition: Callable[[], Awaitable[Any] | Any], seconds: float = 10.0, every: float = 0.02) -> float:
    """Wait for a condition; the seconds it took. AssertionError when it does not come true in time."""
    began = time.monotonic()
    while True:
        value = condition()
        if await value if isinstance(value, Awaitable) else value:
            return time.monotonic() - began
        assert time.monotonic() - began < seconds, f"the condition did not come true in {seconds} s"
        await asyncio.sleep(every)
