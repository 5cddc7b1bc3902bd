"""`homing serve` and its configuration file: SIGHUP reads it anew, options on the command line keep their say."""

from __future__ import annotations

import signal

import aiohttp

from tests.gateway.builders import ENVIRON, running_worker
from tests.gateway.reloading import TWO_TENANTS, build_data, replace_data, replace_file
from tests.gateway.test_serve import FREE, serve


async def test_a_process_reads_its_file_anew(tmp_path):
    """By itself and at SIGHUP; ports of the command line are no difference; a bad file ends nothing."""
    path = tmp_path / "homing.yaml"
    async with running_worker() as worker:
        port = int(worker.url.rpartition(":")[2])
        listen = {"port": 8080, "admin_port": 9090}
        replace_data(path, build_data(port, listen=listen))
        async with serve("--config", str(path), *FREE, environ=ENVIRON) as served:
            told = await served.line("homing is listening")
            replace_data(path, build_data(port, listen=listen, tenants=TWO_TENANTS))
            taken = await served.line("configuration taken")
            replace_file(path, "tenants: 7\n")
            served.process.send_signal(signal.SIGHUP)
            refused = await served.line("configuration refused, the one before stays")
            assert f"{path}:1: $" in refused["because"]
            async with aiohttp.ClientSession() as client:
                headers = {"authorization": "Bearer globex-key"}
                async with client.get(f"http://{told['api']}/v1/models", headers=headers) as answer:
                    assert answer.status == 200
                async with client.get(f"http://{told['admin']}/config") as answer:
                    page = await answer.json()
            assert page["digest"] == taken["digest"]
            assert page["refused"]["reasons"] == [refused["because"]]
            served.process.send_signal(signal.SIGTERM)
            assert (await served.ended())[0] == 0


async def test_sighup_does_not_end_a_gateway_without_a_file():
    """Nothing to read; a terminal that closes is no reason to leave clients alone."""
    async with running_worker() as worker, serve("--worker", worker.url, *FREE) as served:
        told = await served.line("homing is listening")
        served.process.send_signal(signal.SIGHUP)
        async with aiohttp.ClientSession() as client:
            for _ in range(3):
                async with client.get(f"http://{told['admin']}/readyz") as answer:
                    assert answer.status == 200
        served.process.send_signal(signal.SIGTERM)
        assert (await served.ended())[0] == 0
