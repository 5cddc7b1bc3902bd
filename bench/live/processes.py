"""Child processes of a live run: pinned to cores, each in a group of its own, waited for, and ended as groups."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60.0
END_SECONDS = 10.0
POLL_SECONDS = 0.05
LOG_LINES_SHOWN = 15
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class ChildFailed(RuntimeError):
    """A child ended or did not become ready; the message has the end of its log."""


@dataclass(frozen=True)
class Command:
    """What is run: `ready_url` answers 200 once it may be used (tcp://HOST:PORT takes a connection); `core` is the
    only one it may run on."""

    name: str
    arguments: Sequence[str]
    ready_url: str
    log: Path
    core: int | None = None
    environment: Mapping[str, str] | None = None


@dataclass
class Child:
    """A running child, the leader of its group."""

    command: Command
    process: asyncio.subprocess.Process

    def cpu_seconds(self) -> float:
        """CPU time of the whole group so far."""
        return sum(ticks for pid in _pids() for group, ticks in _group_and_ticks(pid) if group == self.process.pid)

    def signal_group(self, number: int) -> None:
        """To everybody in the group who is still there."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    async def kill(self) -> None:
        """End it at once, as a crash would."""
        self.signal_group(signal.SIGKILL)
        await self.process.wait()


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody listens on at this moment, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def router_core() -> int | None:
    """The core that routers get for themselves: the last one, where there is more than one and they can be chosen."""
    cores = sorted(os.sched_getaffinity(0))
    return cores[-1] if len(cores) > 1 and shutil.which("taskset") else None


def others_core() -> int | None:
    """The core of workers and driver."""
    return None if router_core() is None else min(os.sched_getaffinity(0))


@asynccontextmanager
async def running(command: Command) -> AsyncIterator[Child]:
    """Run until the block ends; entered once it is ready. Raises ChildFailed."""
    child = await start(command)
    try:
        await until_ready(child)
        yield child
    finally:
        await end(child)


async def start(command: Command) -> Child:
    """Start it without waiting; whoever calls this ends it."""
    pin = [] if command.core is None else ["taskset", "-c", str(command.core)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(command.environment or {})}
    with command.log.open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            *pin,
            *command.arguments,
            cwd=ROOT,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    return Child(command, process)


async def until_ready(child: Child) -> None:
    """Wait for its page; ChildFailed when it ends first or takes longer than READY_SECONDS."""
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    while not await _is_ready(child.command.ready_url):
        if child.process.returncode is not None or asyncio.get_running_loop().time() > deadline:
            lines = child.command.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
            raise ChildFailed("\n".join((f"{child.command.name} is not ready; the end of its log:", *lines)))
        await asyncio.sleep(POLL_SECONDS)


async def end(child: Child) -> None:
    """SIGTERM to the group, SIGKILL to what is left of it: vllm-router leaves a child of its own behind."""
    child.signal_group(signal.SIGTERM)
    with suppress(TimeoutError):
        await asyncio.wait_for(child.process.wait(), END_SECONDS)
    child.signal_group(signal.SIGKILL)
    await child.process.wait()


async def fetch(url: str, method: str = "GET", body: bytes = b"") -> tuple[int, bytes]:
    """Status and body of a page on loopback; (0, b"") where nobody answers properly."""
    address, _, path = url.removeprefix("http://").partition("/")
    host, _, port = address.partition(":")
    head = f"{method} /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n"
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        with closing(writer):
            return await _whole_answer(reader)
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
        return 0, b""


async def status_of(url: str) -> int:
    """The status alone."""
    return (await fetch(url))[0]


async def _is_ready(url: str) -> bool:
    if not url.startswith("tcp://"):
        return await status_of(url) == 200
    host, _, port = url.removeprefix("tcp://").partition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


async def _whole_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length:")[2].split("\r\n")[0].strip()
    body = await (reader.readexactly(int(length)) if length else reader.read())
    return int(head.split()[1]), body


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _group_and_ticks(pid: int) -> list[tuple[int, float]]:
    """The group and the CPU seconds of a process; nothing if it has just gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [(int(fields[2]), (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND)]
