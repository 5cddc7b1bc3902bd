"""A worker as a process of its own, as operators start it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from openai import AsyncOpenAI

ROOT = Path(__file__).parents[2]
LISTENING = re.compile(r"Listening on (http://\S+)")


@dataclass
class WorkerProcess:
    """A worker that listens at `url`; `log` grows with what it says."""

    process: asyncio.subprocess.Process
    url: str = ""
    log: list[str] = field(default_factory=list)

    def client(self, key: str = "none") -> AsyncOpenAI:
        """The official client, without retries."""
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=60)

    async def until_log(self, pattern: re.Pattern[str], seconds: float = 60.0) -> str:
        """The first line from now on that has the pattern; AssertionError with the log when the process ends first."""
        assert self.process.stderr is not None
        async with asyncio.timeout(seconds):
            while line := (await self.process.stderr.readline()).decode():
                self.log.append(line)
                if pattern.search(line):
                    return line
        raise AssertionError("the worker ended: " + "".join(self.log))

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit status."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        assert self.process.stderr is not None
        self.log.extend((await self.process.stderr.read()).decode().splitlines(keepends=True))
        return await self.process.wait()


async def start(*arguments: str, **environment: str) -> WorkerProcess:
    """`python -m backends.main` with these arguments, not yet listening."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "backends.main", *arguments),
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    return WorkerProcess(process)


@asynccontextmanager
async def worker_process(*arguments: str, **environment: str) -> AsyncIterator[WorkerProcess]:
    """A listening worker on a free port; ended at the end."""
    worker = await start("--port", "0", *arguments, **environment)
    try:
        match = LISTENING.search(await worker.until_log(LISTENING))
        assert match is not None
        worker.url = match.group(1)
        yield worker
    finally:
        await asyncio.wait_for(worker.end(), 30)
