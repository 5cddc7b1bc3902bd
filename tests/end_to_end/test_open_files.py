"""A gateway process that may open few files, before more clients than that."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.processes import ROOT, Process, free_port, get, wait_for
from tests.gateway.builders import key_line
from tests.gateway.running_gateway import Client, build_request
from tests.gateway.scripted_worker import Exchange, answer_json, scripted_worker

FILES, CLIENTS = 256, 400


@contextmanager
def short_of_files(folder: Path, worker_port: int) -> Iterator[tuple[Process, int]]:
    """`homing serve` with at most FILES open files; it listens at once, ready is for the caller to wait."""
    port, admin = free_port(), free_port()
    config = {
        "listen": {"port": port, "admin_port": admin},
        "models": {"m": {"backends": {"static": [f"http://127.0.0.1:{worker_port}"]}}},
        "tenants": {"t": {"keys": [key_line("acme-key")], "isolation": "shared"}},
        "timeouts": {"drain_delay_seconds": 0, "drain_seconds": 1},
    }
    path = folder / "homing.yaml"
    path.write_text(yaml.safe_dump(config))
    log = folder / "log"
    with log.open("wb") as sink:
        popen = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "--config", str(path)],
            cwd=ROOT,
            stdout=sink,
            stderr=sink,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
        )
    try:
        yield Process(f"http://127.0.0.1:{port}", log, popen), admin
    finally:
        popen.terminate()
        popen.wait(20)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def one(port: int, everybody: asyncio.Barrier) -> int:
    """The status of one request on a connection of its own, asked once all are there; 0 for one that was closed."""
    client = None
    with contextlib.suppress(OSError):
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
    await everybody.wait()
    if client is None:
        return 0
    try:
        await client.send(build_request())
        return (await client.answer()).status
    except (OSError, asyncio.IncompleteReadError):
        return 0
    finally:
        client.close()


@pytest.mark.row("E10", smoke=True)
async def test_more_clients_than_files_neither_end_the_gateway_nor_keep_it_busy(tmp_path: Path) -> None:
    """Row E10 and case C-29: the worker, its probes and the admin port keep theirs, the others are sent away or wait
    their turn, and two seconds later everything is as before."""

    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.5)
        await exchange.send_json(answer_json())

    async with scripted_worker(slow) as worker:
        with short_of_files(tmp_path, worker.port) as (process, admin):
            ready = f"http://127.0.0.1:{admin}/readyz"
            await asyncio.to_thread(wait_for, lambda: get(ready)[0] == 200, what="the gateway")
            port, pid = int(process.url.rpartition(":")[2]), process.popen.pid
            before, began = cpu_seconds(pid), time.monotonic()
            everybody = asyncio.Barrier(CLIENTS)
            asking = asyncio.gather(*(one(port, everybody) for _ in range(CLIENTS)))
            assert (await asyncio.to_thread(get, f"http://127.0.0.1:{admin}/livez"))[0] == 200
            statuses = Counter(await asyncio.wait_for(asking, 60))
            share = (cpu_seconds(pid) - before) / (time.monotonic() - began)
            print(f"answers {dict(statuses)}, {share:.0%} of a core")
            assert statuses[200] > 50
            assert set(statuses) <= {0, 200, 503}
            assert process.popen.poll() is None
            assert (await asyncio.to_thread(get, ready))[0] == 200
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            await client.send(build_request())
            assert (await asyncio.wait_for(client.answer(), 2)).status == 200
            client.close()
            idle = cpu_seconds(pid)
            await asyncio.sleep(0.5)
            assert cpu_seconds(pid) - idle < 0.25
            assert "Traceback" not in process.log.read_text()
