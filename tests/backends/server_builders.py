"""A worker's server inside the test: the real engine and routes over a simulated runner, on a real socket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from backends.arguments import parse_arguments
from backends.loading import SIMULATED_END_ID, SIMULATED_VOCABULARY, load
from backends.log_line import Pulse
from backends.server import build_runner
from backends.serving import Worker
from backends.simulated import SimulatedRunner, Timing
from backends.types import Batch, SampledToken
from backends.wiring import build_worker

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures" / "vllm-0.32"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class Gate:
    """The time a step takes, in the test's hands: shut, the engine stands inside its step.

    Open, a step takes `pace_seconds`: nothing, unless a test wants an answer to be still under way a little later.
    """

    def __init__(self) -> None:
        self.pace_seconds = 0.0
        self._open = threading.Event()
        self._open.set()
        self._held = False

    def __call__(self, _seconds: float) -> None:
        self._held = not self._open.is_set()
        if not self._open.wait(30):
            raise TimeoutError("the test forgot to open its gate")
        self._held = False
        if self.pace_seconds:
            time.sleep(self.pace_seconds)

    async def holds_a_step(self) -> None:
        """Wait until the engine stands at the shut gate."""
        await until(self._is_holding, "the engine never came to the gate")

    async def _is_holding(self) -> bool:
        return self._held

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


class FailingRunner(SimulatedRunner):
    """Raises in its next steps, as told."""

    failures = 0

    def execute(self, batch: Batch) -> list[SampledToken | None]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the runner was told to fail")
        return super().execute(batch)


@dataclass
class RunningWorker:
    """A worker that answers at `url`."""

    worker: Worker
    client: aiohttp.ClientSession
    runner: FailingRunner
    gate: Gate
    url: str

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        """Status and decoded answer of a JSON request."""
        async with self.client.post(path, json=body, headers=headers) as response:
            return response.status, await response.json(content_type=None)

    async def chat(self, text: str = "hello", **fields: Any) -> Any:
        """The answer to a one-message chat, which must be a 200."""
        status, answer = await self.post(CHAT, {"messages": [{"role": "user", "content": text}], **fields})
        assert status == 200, answer
        return answer

    async def complete(self, prompt: Any, **fields: Any) -> Any:
        """The answer to a completion, which must be a 200."""
        status, answer = await self.post(COMPLETIONS, {"prompt": prompt, **fields})
        assert status == 200, answer
        return answer

    async def metric(self, name: str) -> float:
        """The value of `vllm:name`, whatever its labels; the sum when there are several."""
        async with self.client.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"vllm:{name}{{"))

    async def until_metric(self, name: str, holds: Callable[[float], bool]) -> None:
        """Wait until a metric is as it should be."""
        await until(lambda: self._holds(name, holds), f"vllm:{name} never got there")

    async def _holds(self, name: str, holds: Callable[[float], bool]) -> bool:
        return holds(await self.metric(name))


async def until(condition: Callable[[], Awaitable[bool]], complaint: str, seconds: float = 20.0) -> None:
    """Wait for an async condition to hold; AssertionError with the complaint when it does not."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, complaint
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running_worker(*arguments: str, answer_tokens: int = 10_000) -> AsyncIterator[RunningWorker]:
    """A simulated worker started with these arguments; its answers have no end of their own."""
    options = parse_arguments(["--simulated", "--served-model-name", "smollm2", *arguments])
    gate = Gate()
    runner = FailingRunner(
        Timing(fixed_seconds=1.0),
        gate,
        vocab_size=SIMULATED_VOCABULARY,
        end_id=SIMULATED_END_ID,
        answer_tokens=answer_tokens,
    )
    worker = build_worker(options, load(options)._replace(runner=runner), Pulse())
    worker.engine.start()
    app_runner = build_runner(worker, shutdown_seconds=1.0)
    await app_runner.setup()
    await web.TCPSite(app_runner, "127.0.0.1", 0).start()
    host, port = app_runner.addresses[0][:2]
    url = f"http://{host}:{port}"
    try:
        async with aiohttp.ClientSession(base_url=url) as client:
            yield RunningWorker(worker, client, runner, gate, url)
    finally:
        gate.open()
        await app_runner.cleanup()
        await worker.engine.stop()


def recorded(name: str) -> dict[str, Any]:
    """An exchange with vLLM 0.32 by name: method, path, request, status, headers, body."""
    exchanges = json.loads((FIXTURES / "exchanges.json").read_text(encoding="utf-8"))
    return next(exchange for exchange in exchanges if exchange["name"] == name)


def events(stream: bytes | str) -> list[Any]:
    """The data of server-sent events, decoded where it is JSON."""
    text = stream.decode() if isinstance(stream, bytes) else stream
    blocks = [block for block in text.split("\n\n") if block]
    assert all(block.startswith("data: ") for block in blocks)
    data = [block.removeprefix("data: ") for block in blocks]
    return [item if item == "[DONE]" else json.loads(item) for item in data]


def shape(value: Any) -> Any:
    """A JSON value with its keys in order and its leaves reduced to their kind."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return {bool: "bool", int: "number", float: "number", str: "text", type(None): "null"}[type(value)]
