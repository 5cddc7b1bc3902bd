"""Row E4: `homing serve --processes` with real processes: counted together, started anew, drained together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from gateway.cli import main
from gateway.metrics import Metrics
from gateway.processes.parent import Processes, StartFailed
from gateway.processes.sums import Sums
from tests.gateway.scripted_worker import DONE, Exchange, event, ordinary, scripted_worker
from tests.gateway.test_probes import free_port
from tests.gateway.test_serve import serve

PROCESSES = int(os.environ.get("HOMING_TEST_PROCESSES", "2"))
REQUESTS = int(os.environ.get("HOMING_TEST_REQUESTS", "240"))
SCRAPES = 20
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Several:
    """A running gateway of several processes, and a client."""

    def __init__(self, served, client, port, admin_port):
        self.served = served
        self.client = client
        self.api = f"http://127.0.0.1:{port}/v1/chat/completions"
        self.admin = f"http://127.0.0.1:{admin_port}"

    async def ask(self, **more):
        """One request on a connection of its own, so that any process may get it; its status."""
        async with self.client.post(self.api, json={**ASKED, **more}, headers={"connection": "close"}) as answer:
            await answer.read()
            return answer.status

    async def ready(self):
        """Status and body of /readyz."""
        async with self.client.get(f"{self.admin}/readyz") as answer:
            return answer.status, json.loads(await answer.read())

    async def until_ready(self, status=200, seconds=60):
        """Wait for a status of /readyz."""
        async with asyncio.timeout(seconds):
            while (await self.ready())[0] != status:  # noqa: ASYNC110 - it is another process that changes
                await asyncio.sleep(0.05)

    async def counted(self, name, **labels):
        """The sum of a metric's samples."""
        async with self.client.get(f"{self.admin}/metrics") as answer:
            text = await answer.text()
        samples = (sample for metric in text_string_to_metric_families(text) for sample in metric.samples)
        return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())

    def pids(self):
        """The processes, oldest first."""
        path = f"/proc/{self.served.process.pid}/task/{self.served.process.pid}/children"
        with open(path) as children:
            return [int(pid) for pid in children.read().split()]


@asynccontextmanager
async def several(worker, *options):
    """Processes in front of one worker, ready."""
    port, admin_port = free_port(), free_port()
    ports = ("--port", str(port), "--admin-port", str(admin_port))
    async with serve("--worker", worker.url, *ports, "--processes", str(PROCESSES), *options) as served:
        await served.line("processes start")
        reading = asyncio.create_task(served.process.stderr.read())
        connector = aiohttp.TCPConnector(force_close=True)
        try:
            async with aiohttp.ClientSession(connector=connector) as client:
                running = Several(served, client, port, admin_port)
                await running.until_ready()
                yield running
        finally:
            reading.cancel()


async def test_no_counter_falls_and_the_sum_is_exact_though_one_process_is_killed_afterwards():
    """E-04: as many as were sent, at every scrape no fewer than at the last; a death loses nothing and is counted."""
    async with scripted_worker() as worker, several(worker) as running:

        async def load():
            for _ in range(REQUESTS // 8):
                assert await running.ask() == 200

        tasks = [asyncio.create_task(load()) for _ in range(8)]
        seen = [await running.counted("homing_requests_total") for _ in range(SCRAPES)]
        await asyncio.gather(*tasks)
        seen.append(await running.counted("homing_requests_total"))
        assert seen == sorted(seen)
        assert seen[-1] == await running.counted("homing_requests_total", code="200") == REQUESTS
        assert await running.counted("homing_request_duration_seconds_count") == REQUESTS
        assert await running.counted("homing_processes") == PROCESSES

        os.kill(running.pids()[0], signal.SIGKILL)
        await running.until_ready(503)
        assert await running.counted("homing_requests_total") == REQUESTS
        assert await running.ask() == 200  # the other one serves
        await running.until_ready()
        assert await running.counted("homing_process_restarts_total") == 1
        assert await running.counted("homing_requests_total") == REQUESTS + 1
        assert len(running.pids()) == PROCESSES


async def check_questions(running, worker):
    """/explain and /workers answer as one process's do; a change goes to all, and is refused where none are allowed."""
    async with running.client.get(f"{running.admin}/workers") as answer:
        assert [each["url"] for each in (await answer.json())["workers"]] == [worker.url]
    async with running.client.post(f"{running.admin}/explain", json=ASKED) as answer:
        assert answer.status == 200
    async with running.client.post(f"{running.admin}/workers", json={"url": worker.url}) as answer:
        assert answer.status in (403, 404, 405)
    async with running.client.get(f"{running.admin}/livez") as answer:
        assert answer.status == 200


async def test_sigterm_drains_all_and_open_streams_end_well():
    """The common page says at once that nobody should come any more; what is open may end."""
    gate = asyncio.Event()

    async def slow_stream(exchange: Exchange) -> None:
        if not exchange.asked.get("stream"):
            await ordinary(exchange)
            return
        await exchange.begin_stream()
        await exchange.chunk(event("a"))
        await gate.wait()
        await exchange.chunk(event("b") + DONE)
        await exchange.end_stream()

    async with scripted_worker(slow_stream) as worker, several(worker) as running:
        await check_questions(running, worker)
        async with running.client.post(running.api, json={**ASKED, "stream": True}) as answer:
            await answer.content.readuntil(b"\n\n")
            running.served.process.send_signal(signal.SIGTERM)
            await running.until_ready(503)
            gate.set()
            assert (await answer.content.read()).endswith(b"data: [DONE]\n\n")
        async with asyncio.timeout(30):
            assert await running.served.process.wait() == 0


async def test_a_process_that_cannot_even_start_ends_all():
    """With the code that it ends with, not over and over again."""
    metrics = Metrics(CollectorRegistry())
    processes = Processes(2, lambda _number, _line: [sys.executable, "-c", "raise SystemExit(3)"], metrics, Sums())
    with pytest.raises(StartFailed) as failed:
        await processes.run()
    assert failed.value.code == 3
    assert processes.is_leaving()


def test_the_number_of_processes_is_bounded(capsys):
    """In words, before anything is read."""
    assert main(["serve", "--worker", "http://127.0.0.1:1", "--processes", "0"]) == 2
    assert "--processes takes a number from 1 to 64" in capsys.readouterr().err


async def test_a_port_that_is_taken_is_told():
    """Before any process is started."""
    async with scripted_worker() as worker:
        taken = worker.url.rpartition(":")[2]
        async with serve("--worker", worker.url, "--port", taken, "--admin-port", "0", "--processes", "2") as served:
            code, said = await served.ended()
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{taken}" in said
