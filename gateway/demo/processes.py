"""Child processes of the demonstration: started on free ports, waited for, and ended whatever happens."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

READY_SECONDS = 120.0
POLL_SECONDS = 0.1
END_SECONDS = 10.0
LOG_LINES_SHOWN = 12


class ChildFailed(RuntimeError):
    """A child ended, or did not answer in time; the message holds the last lines of its log."""


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running(name: str, arguments: Sequence[str], ready_url: str, log: Path) -> AsyncIterator[None]:
    """Run `python -m …` until the block ends; entered once `ready_url` answers 200.

    Raises ChildFailed when the child ends or is not ready within READY_SECONDS.
    """
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink
        )
    try:
        await _ready(name, process, ready_url, log)
        yield
    finally:
        await _end(process)


async def _ready(name: str, process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    deadline = asyncio.get_running_loop().time() + READY_SECONDS
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
        while not await _answers(session, url):
            if process.returncode is not None or asyncio.get_running_loop().time() > deadline:
                raise ChildFailed(f"{name} is not ready at {url}; the end of its log:\n{_last_lines(log)}")
            await asyncio.sleep(POLL_SECONDS)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), END_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
