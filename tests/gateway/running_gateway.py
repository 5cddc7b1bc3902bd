"""A whole gateway on real sockets before scripted workers, and a client that sees every byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.app import Gateway
from gateway.config import load_secrets
from gateway.settings import (
    Backends,
    Config,
    Limits,
    Listen,
    Model,
    Prewarm,
    Probes,
    Record,
    Redis,
    StaticBackend,
    TenantSettings,
    Timeouts,
)
from tests.gateway.builders import ENVIRON, key_line
from tests.gateway.scripted_worker import ScriptedWorker

MESSAGES = [{"role": "user", "content": "hello there"}]


@dataclass
class Answer:
    """One answer as it came: head, de-chunked body, and whether it ended as its framing says."""

    status: int
    fields: dict[str, str]
    body: bytes
    whole: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return dict(self.json["error"])


def build_request(
    path: str = "/v1/chat/completions",
    *,
    key: str | None = "acme-key",
    body: bytes | None = None,
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    version: str = "1.1",
    method: str = "POST",
    **fields: Any,
) -> bytes:
    """The bytes of one request; fields replace or add to the body's own."""
    if method != "POST":
        body = b""
    elif body is None:
        body = json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode()
    lines = [f"{method} {path} HTTP/{version}", "host: gateway"]
    lines += [f"authorization: Bearer {key}"] if key else []
    given = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    if method == "POST" and not {"transfer-encoding", "content-length"} & {name for name, _ in given}:
        given.append(("content-length", str(len(body))))
    lines += [f"{name}: {value}" for name, value in given]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = await self.reader.readuntil(b"\r\n\r\n")
        status_line, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return int(status_line.split(" ")[1]), fields

    async def answer(self) -> Answer:
        """The next answer, whole or as far as it came."""
        status, fields = await self.head()
        if fields.get("transfer-encoding") == "chunked":
            body, whole = await self._chunks()
        elif "content-length" in fields:
            body, whole = await self._exactly(int(fields["content-length"]))
        else:
            body, whole = await self._rest()
        return Answer(status, fields, body, whole)

    async def chunk(self) -> bytes:
        """The next chunk's payload; b"" for the last."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        payload = await self.reader.readexactly(size)
        assert await self.reader.readexactly(2) == b"\r\n"
        return payload

    async def closed(self) -> bool:
        """Wait for the gateway to close; False when it says something more."""
        try:
            return await asyncio.wait_for(self.reader.read(1), 5) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()

    async def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        try:
            while payload := await self.chunk():
                body += payload
        except (asyncio.IncompleteReadError, ConnectionError):
            return body, False
        return body, True

    async def _exactly(self, length: int) -> tuple[bytes, bool]:
        try:
            return await self.reader.readexactly(length), True
        except asyncio.IncompleteReadError as error:
            return error.partial, False
        except ConnectionError:
            return b"", False

    async def _rest(self) -> tuple[bytes, bool]:
        body = b""
        try:
            while piece := await self.reader.read(65536):
                body += piece
        except ConnectionError:
            return body, False
        return body, True


@dataclass
class Running:
    """A gateway that runs, and ways to ask it."""

    gateway: Gateway

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.gateway.api_port, limit=2**22))

    async def ask(self, **request: Any) -> Answer:
        """One request on a connection of its own; arguments as for `build_request`."""
        return await self.send(build_request(**request))

    async def send(self, data: bytes) -> Answer:
        client = await self.connect()
        try:
            await client.send(data)
            async with asyncio.timeout(10):
                return await client.answer()
        finally:
            client.close()

    def count(self, name: str, **labels: str) -> float:
        """The value of a series; 0 when there is none."""
        return self.gateway.metrics.registry.get_sample_value(f"homing_{name}", labels) or 0.0

    def settled(self) -> bool:
        """Nothing is under way and no count says otherwise."""
        fleet = self.gateway.fleet
        fleet.check_integrity()
        for router in self.gateway.serving.routers.values():
            router.check_integrity()
        in_flight = sum(worker.in_flight for worker in fleet.workers)
        in_routers = sum(router.stats().in_flight for router in self.gateway.serving.routers.values())
        return (
            self.gateway.server.open_requests
            == in_flight
            == in_routers
            == self.count("requests_in_flight", model="m")
            == 0
        )


def build_tenants() -> dict[str, TenantSettings]:
    """Kept apart, sharing its cache, allowed to see who answered, short of tokens, not allowed `m`, with a share,
    rewritten, not kept for prewarming, allowed to set priorities."""
    return {
        "acme": TenantSettings(keys=[key_line("acme-key")]),
        "shared": TenantSettings(keys=[key_line("shared-key")], isolation="shared"),
        "curious": TenantSettings(keys=[key_line("curious-key")], allow_debug_headers=True),
        "brief": TenantSettings(keys=[key_line("brief-key")], max_prompt_tokens=20),
        "foreign": TenantSettings(keys=[key_line("foreign-key")], models=["lora"]),
        "support": TenantSettings(keys=[key_line("support-key")], cache_partition="support"),
        "rewritten": TenantSettings(keys=[key_line("rewritten-key")], rewrite=["clock_last", "tool_order"]),
        "private": TenantSettings(keys=[key_line("private-key")], prewarm=False),
        "hasty": TenantSettings(keys=[key_line("hasty-key")], allow_priority=True),
    }


@asynccontextmanager
async def running_gateway(
    *workers: ScriptedWorker | int,
    first_byte: float = 5.0,
    whole_answer: float | None = None,
    idle: float = 5.0,
    drain: float = 5.0,
    heartbeat: float | None = None,
    hold: float = 0.0,
    salts_messages: bool = True,
    body_bytes: int = 32 * 2**20,
    policy: str = "homing",
    probe_seconds: float = 0.5,
    record: Record | None = None,
    prewarm: Prewarm | None = None,
    redis_url: str | None = None,
    client_timeouts: Mapping[str, float] | None = None,
    connections: int = 100_000,
) -> AsyncIterator[Running]:
    """A gateway of the model `m` before these workers (or ports), perhaps one of several; timeouts in seconds."""
    ports = [worker if isinstance(worker, int) else worker.port for worker in workers]
    static: list[str | StaticBackend] = [
        StaticBackend(url=f"http://127.0.0.1:{port}", name=f"w{number}") for number, port in enumerate(ports, 1)
    ]
    config = Config(
        listen=Listen(port=0, admin_port=0),
        models={
            "m": Model(
                backends=Backends(static=static), policy=policy, adapters=["lora"], salts_messages=salts_messages
            )
        },
        tenants=build_tenants(),
        salt_secrets={"k1": "env:SALT"},
        timeouts=Timeouts(
            first_byte_seconds=first_byte,
            whole_answer_seconds=whole_answer or first_byte,
            idle_seconds=idle,
            stream_heartbeat_seconds=heartbeat,
            hold_seconds=hold,
            drain_delay_seconds=0,
            drain_seconds=drain,
            **(client_timeouts or {}),
        ),
        limits=Limits(body_bytes=body_bytes, connections=connections),
        probes=Probes(interval_seconds=probe_seconds, start_seconds=2.0),
        record=record,
        redis=Redis(url=redis_url, start_seconds=0.5) if redis_url is not None else None,
        prewarm=prewarm or Prewarm(),
    )
    async with Gateway(config, load_secrets(config, ENVIRON)) as gateway:
        yield Running(gateway)
