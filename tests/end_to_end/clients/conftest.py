"""One gateway for all clients, over a simulated worker and a server that speaks every endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.end_to_end.clients.model_server import MODEL, ModelServer, model_server
from tests.end_to_end.fleet import KEYS, build_config
from tests.end_to_end.processes import GatewayProcess, gateway, get, simulated_worker, wait_for

KEY = KEYS["alpha"]


@dataclass
class Running:
    """The gateway, and the server behind the model `vllm`."""

    gateway: GatewayProcess
    server: ModelServer

    @property
    def url(self) -> str:
        return self.gateway.url

    def wait_until_idle(self) -> None:
        """Until no worker has a request of this gateway."""
        wait_for(self._idle, seconds=10, what="the leases to be given back")

    def _idle(self) -> bool:
        text = get(f"{self.gateway.admin}/metrics")[1]
        lines = [line for line in text.splitlines() if line.startswith("homing_backend_in_flight{")]
        return bool(lines) and all(line.endswith(" 0.0") for line in lines)


@pytest.fixture(scope="package")
def running(tmp_path_factory: Any) -> Iterator[Running]:
    """Two models: `smollm2` of the bundled worker, simulated, and `vllm`."""
    directory = tmp_path_factory.mktemp("clients")
    with simulated_worker(directory) as worker, model_server() as server:
        config = build_config(directory, {"w0": worker.url})
        config["models"][MODEL] = {"backends": {"static": [{"name": "v0", "url": server.url}]}, "salts_messages": True}
        config["timeouts"] = {"stream_heartbeat_seconds": 0.15, "drain_delay_seconds": 0.1, "drain_seconds": 5}
        for tenant in config["tenants"].values():
            tenant.pop("models")
        with gateway(directory, config) as process:
            yield Running(process, server)
