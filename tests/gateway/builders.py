"""Sane defaults for the gateway's tests: configurations, workers, tenants, and a small real worker on a socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from aiohttp import web

from gateway.addresses import parse_worker_url
from gateway.fleet import Fleet
from gateway.model_cards import ModelCard
from gateway.worker_metrics import WorkerFigures
from gateway.worker_state import Backend, ProbeResult, ServingFacts, Worker

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
SALT_SECRET = "kX9v-2mQ7rT4wZ1yB6nD8cF3gH5jL0pS"


def build_backend(name: str = "w1", *, port: int = 8000, models: Sequence[str] = ("m",), **more: Any) -> Backend:
    return Backend(name=name, address=parse_worker_url(f"http://127.0.0.1:{port}"), models=frozenset(models), **more)


def build_cards(*ids: str, max_model_len: int | None = 4096, **parents: str) -> tuple[ModelCard, ...]:
    """Cards of base models by id, and of adapters as `lora_a="m"`."""
    bases = [ModelCard(id=name, max_model_len=max_model_len) for name in ids]
    adapters = [ModelCard(id=name.replace("_", "-"), parent=parent) for name, parent in parents.items()]
    return (*bases, *adapters)


def build_healthy(*models: str, figures: WorkerFigures | None = None, **parents: str) -> ProbeResult:
    return ProbeResult(cards=build_cards(*(models or ("m",)), **parents), figures=figures)


def build_fleet(*names: str, facts: Mapping[str, ServingFacts] | None = None, ready: bool = True) -> Fleet:
    """A fleet of workers of the model `m`, ready unless told otherwise."""
    fleet = Fleet(facts or {"m": ServingFacts()})
    for number, name in enumerate(names or ("w1",)):
        fleet.add(build_backend(name, port=8000 + number))
        if ready:
            fleet.probed(name, build_healthy(), now=0.0)
    return fleet


def build_worker(**more: Any) -> Worker:
    return Worker(build_backend(**more))


def key_line(key: str) -> str:
    """How a key stands in the configuration."""
    return f"sha256:{sha256(key.encode()).hexdigest()}"


def build_config_data(**sections: Any) -> dict[str, Any]:
    """A small right configuration as plain data; sections replace its own."""
    return {
        "listen": {"port": 0, "admin_port": 0},
        "salt_secrets": {"k1": "env:SALT"},
        "models": {"m": {"backends": {"static": ["http://127.0.0.1:8001"]}}},
        "tenants": {"acme": {"keys": [key_line("acme-key")], "models": ["m"]}},
        **sections,
    }


ENVIRON = {"SALT": SALT_SECRET}


def write_config(folder: Path, text: str) -> Path:
    path = folder / "homing.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def write_config_data(folder: Path, **sections: Any) -> Path:
    return write_config(folder, json.dumps(build_config_data(**sections), indent=1))


@dataclass
class FakeWorker:
    """What the small worker answers, changeable while it runs, and what it was asked."""

    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "m", "max_model_len": 4096}])
    metrics: str = "process_start_time_seconds 1.0\nvllm:num_requests_waiting 0\n"
    health: int = 200
    api_key: str | None = None
    redirect_metrics_to: str | None = None
    pages: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    authorizations: set[str | None] = field(default_factory=set)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        self.authorizations.add(request.headers.get("authorization"))
        if self.api_key is not None and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return web.json_response({"error": "unauthorised"}, status=401 if request.path != "/health" else 200)
        if request.path == "/health":
            return web.Response(status=self.health)
        if request.path == "/v1/models":
            return web.json_response({"object": "list", "data": self.models})
        if request.path == "/metrics" and self.redirect_metrics_to is not None:
            return web.Response(status=307, headers={"location": self.redirect_metrics_to})
        if request.path in self.pages:
            return web.json_response(self.pages[request.path])
        if request.path in ("/metrics", "/metrics/"):
            return web.Response(text=self.metrics)
        if request.method == "POST":
            return await self._complete(request)
        return web.Response(status=404)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.bodies.append(asked)
        usage = {
            "prompt_tokens": 100,
            "completion_tokens": 2,
            "total_tokens": 102,
            "prompt_tokens_details": {"cached_tokens": 64},
        }
        if not asked.get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
            return web.json_response({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for piece in ("hel", "lo"):
            event = {"id": "1", "choices": [{"index": 0, "delta": {"content": piece}}]}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        if asked.get("stream_options", {}).get("include_usage"):
            await response.write(b"data: " + json.dumps({"id": "1", "choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response


@asynccontextmanager
async def running_worker(port: int = 0, **more: Any) -> AsyncIterator[FakeWorker]:
    """A worker on a real socket that answers as `FakeWorker` says; `url` is where."""
    worker = FakeWorker(**more)
    runner = web.ServerRunner(web.Server(worker.answer), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    worker.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield worker
    finally:
        await runner.cleanup()
