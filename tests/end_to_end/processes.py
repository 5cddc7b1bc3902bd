"""Real processes for the end-to-end tests: workers and gateways on free ports, waited for, and ended."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
START_SECONDS = 90.0
END_SECONDS = 20.0


@dataclass
class Process:
    """A running child, with where it listens and where it logs."""

    url: str
    log: Path
    popen: subprocess.Popen

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.popen.kill()
        self.popen.wait(END_SECONDS)

    def stop(self) -> int:
        """SIGTERM and wait; the exit code."""
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(END_SECONDS)


@dataclass
class GatewayProcess(Process):
    """A running gateway."""

    admin: str = ""


def free_port() -> int:
    """A port that nobody listens on, below those that outgoing connections are given: none takes it meanwhile."""
    while True:
        port = 15_000 + secrets.randbelow(17_000)  # `random` is seeded alike in every process that runs tests
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


def wait_for(condition: Callable[[], Any], *, seconds: float = START_SECONDS, what: str = "a condition") -> Any:
    """The condition's first true value; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return value


def get(url: str) -> tuple[int, str]:
    """Status and text of a page; status 0 when nobody listens."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@contextmanager
def worker(directory: Path, *flags: str, name: str = "smollm2", port: int | None = None) -> Iterator[Process]:
    """A bundled worker that answers /health."""
    port = port or free_port()
    common = ["--model", "smollm2", "--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    arguments = ["backends.main", *common, *flags]
    with _child(arguments, f"http://127.0.0.1:{port}", "/health", directory / f"worker-{port}.log") as child:
        yield child


def simulated_worker(directory: Path, *flags: str, name: str = "smollm2", port: int | None = None):
    """A worker with a timing model: 100,000 tokens/s of prefill, 2 ms a step and a token."""
    speed = ["--simulated-prefill-tokens-per-second", "100000", "--simulated-fixed-seconds", "0.002"]
    pace = ["--simulated-seconds-per-token", "0.002", "--max-model-len", "16384", "--num-gpu-blocks-override", "4096"]
    return worker(directory, "--simulated", *speed, *pace, *flags, name=name, port=port)


@contextmanager
def gateway(directory: Path, config: Mapping[str, Any], *, all_up: bool = True) -> Iterator[GatewayProcess]:
    """A gateway with this configuration, ready, and before workers that are all up unless `all_up` says otherwise: one
    of them would do for it, and on a busy machine a worker may be late for its first probe."""
    port, admin = free_port(), free_port()
    listen = {**config.get("listen", {}), "port": port, "admin_port": admin}
    path = directory / f"gateway-{port}.yaml"
    path.write_text(
        yaml.safe_dump({"timeouts": {"drain_delay_seconds": 0.1, "drain_seconds": 5}, **config, "listen": listen})
    )
    with serve(directory, ["--config", str(path)], port, admin) as process:
        if all_up:
            wait_for(lambda: not workers_down(process), what="all workers to be up")
        yield process


def workers_down(process: GatewayProcess) -> dict[str, str]:
    """What /readyz says of the workers that may not be used."""
    return dict(json.loads(get(f"{process.admin}/readyz")[1])["workers_down"])


@contextmanager
def serve(directory: Path, options: Sequence[str], port: int, admin: int) -> Iterator[GatewayProcess]:
    """`homing serve` with these options, ready on its admin port."""
    arguments = ["gateway", "serve", *options]
    admin_url = f"http://127.0.0.1:{admin}"
    with _child(arguments, admin_url, "/readyz", directory / f"gateway-{port}.log") as child:
        yield GatewayProcess(f"http://127.0.0.1:{port}", child.log, child.popen, admin_url)


@contextmanager
def _child(arguments: Sequence[str], url: str, ready: str, log: Path) -> Iterator[Process]:
    with log.open("wb") as sink:
        popen = subprocess.Popen([sys.executable, "-m", *arguments], cwd=ROOT, stdout=sink, stderr=sink)
    child = Process(url, log, popen)
    try:
        wait_for(lambda: _is_ready(child, ready), what=f"{arguments[0]} at {url}")
        yield child
    finally:
        if popen.poll() is None:
            popen.terminate()
            try:
                popen.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()


def _is_ready(child: Process, path: str) -> bool:
    assert child.popen.poll() is None, child.log.read_text()
    return get(child.url + path)[0] == 200
