"""A gateway that runs from a file, which a test rewrites."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gateway.app import Gateway
from gateway.config import load_config, load_secrets
from gateway.logs import RequestLog
from gateway.reload import Source
from gateway.settings import Config
from tests.gateway.builders import ENVIRON, key_line
from tests.gateway.running_gateway import Running

TWO_TENANTS = {"acme": {"keys": [key_line("acme-key")]}, "globex": {"keys": [key_line("globex-key")]}}
QUICK = {"drain_delay_seconds": 0, "first_byte_seconds": 5, "idle_seconds": 5}


def build_data(*ports: int, **sections: Any) -> dict[str, Any]:
    """A configuration of the model `m` on these workers and one tenant, `acme`; sections replace its own."""
    static = [{"url": f"http://127.0.0.1:{port}", "name": f"w{number}"} for number, port in enumerate(ports, 1)]
    return {
        "listen": {"port": 0, "admin_port": 0},
        "salt_secrets": {"k1": "env:SALT"},
        "models": {"m": {"backends": {"static": static}}},
        "tenants": {"acme": {"keys": [key_line("acme-key")]}},
        "timeouts": QUICK,
        "probes": {"interval_seconds": 0.2, "start_seconds": 2.0},
        **sections,
    }


def replace_file(path: Path, text: str) -> None:
    """As an operator should: written aside and moved into place."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, path)


def replace_data(path: Path, data: Mapping[str, Any]) -> None:
    replace_file(path, json.dumps(data, indent=1))


def source_of(path: Path, environ: Mapping[str, str] = ENVIRON) -> Source:
    def load() -> tuple[Config, Any]:
        config = load_config(path, environ)
        # A free port, whatever the file says: as --port does.
        config = msgspec.structs.replace(config, listen=msgspec.structs.replace(config.listen, port=0, admin_port=0))
        return config, load_secrets(config, environ)

    return Source(path, load)


@asynccontextmanager
async def gateway_from(path: Path, request_log: RequestLog | None = None) -> AsyncIterator[Running]:
    """A gateway of the file at `path`, which is watched."""
    source = source_of(path)
    config, secrets = source.load()
    async with Gateway(config, secrets, source=source, request_log=request_log) as gateway:
        yield Running(gateway)


async def admin_page(running: Running, page: str) -> tuple[int, dict]:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{running.gateway.admin_port}{page}") as answer:
            return answer.status, await answer.json()


async def status_with(running: Running, key: str, **more) -> int:
    return (await running.ask(key=key, **more)).status


def prompt(number: int) -> list[dict[str, str]]:
    """Several blocks of text that begin like no other's."""
    letters = random.Random(number)
    return [{"role": "user", "content": " ".join("".join(letters.choices("abcdefgh", k=7)) for _ in range(120))}]


async def on_the_ring(running: Running, workers: int) -> None:
    """Ask until the ring has so many workers; it gathers changes for a moment."""
    async with asyncio.timeout(10):
        while running.gateway.serving.router("m").stats().ring_workers != workers:
            assert await status_with(running, "acme-key") == 200
