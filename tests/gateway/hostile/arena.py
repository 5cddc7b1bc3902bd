"""A gateway before a worker that records, and clients that send anything and read until they are closed."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.running_gateway import Running, running_gateway
from tests.gateway.scripted_worker import ScriptedWorker, scripted_worker

AT_ONCE = 128
HANG_SECONDS = 20.0
QUICK = {"header_seconds": 0.3, "keep_alive_seconds": 0.3, "body_seconds": 0.3, "write_seconds": 0.5}
CANONICAL = re.compile(rb"POST /v1/[a-z/_]+ HTTP/1\.1\r\n(?:[a-z-]+: [ -~]*\r\n)+\r\n")
STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) ")
CLOSING = (408, 431)
NO_WORKER = 299
"""Stands for a 200 that no worker gave: a list of models."""


@dataclass
class Arena:
    """What was sent to it and what came back."""

    running: Running
    worker: ScriptedWorker
    faults: list[str] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    async def fight(self, wires: Iterable[bytes]) -> list[list[int]]:
        """Send each on a connection of its own; the statuses of the answers to each, once the gateway has closed."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(wire: bytes) -> list[int]:
            async with gate:
                return self._judged(wire, await self._answers(wire))

        return await asyncio.gather(*map(one, wires))

    def served(self) -> tuple[int, int, int]:
        """Requests answered by a worker: as clients saw it, as the gateway counted, as the worker recorded."""
        registry = self.running.gateway.metrics.registry
        counted = sum(
            sample.value
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == "homing_requests_total" and sample.labels["code"] == "200"
        )
        return self.statuses[200], int(counted), len(self.worker.exchanges)

    def check_worker(self) -> None:
        """What reached the worker is of one form, whatever was sent to the gateway."""
        for exchange in self.worker.exchanges:
            names = [line.partition(b":")[0] for line in exchange.head.split(b"\r\n")[1:-2]]
            assert CANONICAL.fullmatch(exchange.head), exchange.head
            assert names.count(b"host") == names.count(b"content-length") == 1
            assert not {b"transfer-encoding", b"connection", b"upgrade", b"expect", b"te"} & set(names)
            assert len(set(names)) == len(names)
            assert isinstance(exchange.asked, dict)

    async def _answers(self, wire: bytes) -> bytes:
        client = await self.running.connect()
        try:
            with suppress(ConnectionError):
                client.writer.write(wire)
                async with asyncio.timeout(HANG_SECONDS):
                    return await self._all(client.reader)
        except TimeoutError:
            self.faults.append(f"still open after {HANG_SECONDS} s: {wire[:200]!r}")
        finally:
            client.abort()
        return b""

    async def _all(self, reader: asyncio.StreamReader) -> bytes:
        answers = b""
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                answers += piece
        return answers

    def _judged(self, wire: bytes, answers: bytes) -> list[int]:
        statuses: list[int] = []
        while answers:
            match = STATUS_LINE.match(answers)
            if match is None:
                self.faults.append(f"no answer: {answers[:80]!r} to {wire[:200]!r}")
                break
            head, _, answers = answers.partition(b"\r\n\r\n")
            if int(match[1]) == 100:
                continue
            body, answers = (b"", answers) if answers_head(wire, answers) else body_and_rest(head.lower(), answers)
            statuses.append(NO_WORKER if body.startswith(b'{"object":"list"') else int(match[1]))
            malformed = b"not well-formed" in body or statuses[-1] in CLOSING
            if malformed and (answers or b"connection: close" not in head):
                self.faults.append(f"not closed: {head!r} to {wire[:200]!r}")
        self.statuses.update(statuses)
        return statuses


def answers_head(wire: bytes, rest: bytes) -> bool:
    """Whether an answer was one to HEAD: its length is told and its body never sent, so that the next answer follows.

    No body of ours or of the worker's begins like an answer.
    """
    return b"HEAD " in wire and STATUS_LINE.match(rest) is not None


def body_and_rest(fields: bytes, rest: bytes) -> tuple[bytes, bytes]:
    """What belongs to an answer, and what follows it."""
    if b"transfer-encoding: chunked" in fields:
        body, _, rest = rest.partition(b"0\r\n\r\n")
        return body, rest
    length = re.search(rb"content-length: (\d+)", fields)
    size = int(length[1]) if length else len(rest)
    return rest[:size], rest[size:]


@asynccontextmanager
async def arena(**timeouts: float) -> AsyncIterator[Arena]:
    """An arena whose gateway has little patience; what its event loop could not handle is a fault."""
    async with scripted_worker() as worker:
        async with running_gateway(worker, client_timeouts={**QUICK, **timeouts}) as running:
            here = Arena(running, worker)

            def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
                here.faults.append(f"{context['message']}: {context.get('exception')!r}")

            asyncio.get_running_loop().set_exception_handler(note)
            yield here
