"""What the parent's admin port passes on to the processes, and what it does not."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from gateway.metrics import Metrics
from gateway.processes.admin import ProcessesAdmin
from gateway.processes.parent import Processes
from gateway.processes.sums import Sums
from tests.gateway.scripted_worker import until


@asynccontextmanager
async def admin_before_a_process(metrics: Metrics | None = None):
    """The parent's port, and the requests that a process behind it was sent."""
    heard: list[web.BaseRequest] = []

    async def hear(request: web.BaseRequest) -> web.Response:
        heard.append(request)
        return web.Response(text="heard")

    runner = web.ServerRunner(web.Server(hear))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    metrics, sums = metrics or Metrics(CollectorRegistry()), Sums()
    processes = Processes(1, lambda *_: [], metrics, sums)
    processes.members[0].admin_port = runner.addresses[0][1]
    try:
        async with ProcessesAdmin(processes, metrics, sums) as admin:
            yield await admin.start("127.0.0.1", 0), runner.addresses[0][1], heard
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site", "Authorization"])
async def test_a_process_hears_what_it_refuses_changes_by(name):
    """It refuses those that a page in a browser asks for, or somebody without the token; it must be told."""
    async with admin_before_a_process() as (port, _, heard), aiohttp.ClientSession() as session:
        async with session.post(f"http://127.0.0.1:{port}/workers", headers={name: "cross-site"}, data=b"{}"):
            pass
        assert heard[0].headers[name] == "cross-site"
        assert heard[0].headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    "line", ["CONNECT a@127.0.0.1:{0} HTTP/1.1", "OPTIONS * HTTP/1.1", "GET http://127.0.0.1:{0}/x HTTP/1.1"]
)
async def test_nothing_but_a_path_is_passed_on(line):
    """Any other target, put behind the address of a process, could be the address of somebody else."""
    async with admin_before_a_process() as (port, other, heard):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{line.format(other)}\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        async with asyncio.timeout(5):
            await reader.read()
        writer.close()
        assert heard == []


async def test_processes_are_looked_at_again_after_a_fault(monkeypatch):
    """What they count must not be lost with one that dies because a page could once not be read."""
    monkeypatch.setattr("gateway.processes.admin.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("gateway.processes.admin.read_page", lambda _: 1 / 0)
    metrics = Metrics(CollectorRegistry())
    async with admin_before_a_process(metrics) as (_, _, heard):
        await until(lambda: len(heard) >= 2)
        value = metrics.registry.get_sample_value
        await until(lambda: (value("homing_task_restarts_total", {"task": "processes"}) or 0) >= 1)
