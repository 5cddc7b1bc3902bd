"""The stage of the bench of connections: a gateway process before a worker of this one, and what is measured there."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from bench.live.processes import Command, free_ports, running
from bench.raw_http import KEY, Worker, worker

LIMIT_BYTES = 32 * 2**20


class Figure(NamedTuple):
    """One measurement beside its bar; smaller is better."""

    name: str
    value: float
    bar: float
    unit: str


class Here(NamedTuple):
    """What runs: the gateway's ports and process, and the worker."""

    port: int
    admin: int
    pid: int
    worker: Worker

    def rss_kib(self) -> int:
        """Resident memory of the gateway."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


def config(port: int, admin: int, worker_port: int) -> str:
    """One model, one tenant, times as they are by default."""
    return yaml.safe_dump(
        {
            "listen": {"port": port, "admin_port": admin},
            "models": {"m": {"backends": {"static": [f"http://127.0.0.1:{worker_port}"]}, "max_in_flight": 5000}},
            "tenants": {"t": {"keys": [f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"], "isolation": "shared"}},
            "limits": {"body_bytes": LIMIT_BYTES},
            "log": {"request_share": 0.0},
            "prewarm": {"enabled": False},
        }
    )


def written(path: Path, text: str) -> Path:
    """The path, with this in it."""
    path.write_text(text)
    return path


@asynccontextmanager
async def stage() -> AsyncIterator[Here]:
    """A gateway process before a worker of this one."""
    port, admin = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        async with worker() as there:
            path = written(Path(folder, "homing.yaml"), config(port, admin, there.port))
            arguments = [sys.executable, "-m", "gateway", "serve", "--config", str(path)]
            command = Command("gateway", arguments, f"http://127.0.0.1:{admin}/readyz", Path(folder, "log"))
            async with running(command) as child:
                yield Here(port, admin, child.process.pid, there)


def p99(seconds: list[float]) -> float:
    """Of these."""
    return sorted(seconds)[int(len(seconds) * 0.99)]


async def quiet(count: Callable[[], int]) -> None:
    """Wait until this has not changed for a second."""
    before = -1
    while before != count():
        before = count()
        await asyncio.sleep(1.0)


async def reached(condition: Callable[[], bool]) -> None:
    """Wait for it; ten seconds at most."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it is another process's doing, which sets no event
            await asyncio.sleep(0.001)


def line(figure: Figure) -> str:
    """A figure beside its bar."""
    verdict = "ok" if figure.value <= figure.bar else "MISSED"
    return f"{figure.name:<64} {figure.value:10.2f} {figure.unit:<4} (bar {figure.bar:g}) {verdict}"
