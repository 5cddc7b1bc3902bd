"""The parent of several gateways: starts them, starts those anew that die, and takes all along when it leaves."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from gateway.metrics import Metrics
from gateway.processes.sums import Sums

FIRST_BACK_OFF_SECONDS: Final = 0.1
MOST_BACK_OFF_SECONDS: Final = 10.0
SETTLED_SECONDS: Final = 60.0
"""A process that lived as long did not die of its start."""

log: Final = logging.getLogger("homing.processes")


class StartFailed(RuntimeError):
    """A process ended before it ever served; `code` is what it ended with."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a process ended with code {code} before it served")
        self.code = code


class Member:
    """One of the processes: who it is at the moment."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.process: Process | None = None
        self.admin_port: int | None = None
        """Where it answers, once it serves."""
        self.deaths_in_a_row = 0

    def signal(self, number: signal.Signals) -> None:
        """Pass a signal on; nothing happens where nobody is."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


class Processes:
    """`count` gateways, each started by `command(index, descriptor)` with that descriptor left open for it."""

    def __init__(self, count: int, command: Callable[[int, int], Sequence[str]], metrics: Metrics, sums: Sums) -> None:
        self.members = [Member(index) for index in range(count)]
        self._command = command
        self._metrics = metrics
        self._sums = sums
        self._leaving = asyncio.Event()

    def is_leaving(self) -> bool:
        """Whether all were asked to leave."""
        return self._leaving.is_set()

    async def run(self) -> None:
        """Until all have left; raises `StartFailed`, the others stopped, when one cannot even start."""
        tasks = [asyncio.create_task(self._keep(member), name=f"process {member.index}") for member in self.members]
        try:
            await asyncio.gather(*tasks)
        finally:
            self.leave(signal.SIGTERM)
            await asyncio.gather(*tasks, return_exceptions=True)

    def leave(self, number: signal.Signals) -> None:
        """Ask all to leave, and start none anew."""
        self._leaving.set()
        self.tell(number)

    def tell(self, number: signal.Signals) -> None:
        """Pass a signal on to all."""
        for member in self.members:
            member.signal(number)

    async def _keep(self, member: Member) -> None:
        """One member's lives, one after the other."""
        served = False
        while not self.is_leaving():
            began = time.monotonic()
            code = await self._live(member)
            served = served or member.admin_port is not None
            member.process = member.admin_port = None
            self._sums.left(member.index)
            if self.is_leaving():
                return
            if not served:
                raise StartFailed(code)
            settled = time.monotonic() - began > SETTLED_SECONDS
            member.deaths_in_a_row = 1 if settled else member.deaths_in_a_row + 1
            await self._back_off(member, code)

    async def _live(self, member: Member) -> int:
        """From start to end; returns the exit code."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = self._command(member.index, theirs.fileno())
            member.process = process = await asyncio.create_subprocess_exec(*command, pass_fds=[theirs.fileno()])
        if self.is_leaving():
            member.signal(signal.SIGTERM)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            line = await reader.readline()
            if line:
                member.admin_port = int(msgspec.json.decode(line)["admin_port"])
                self._metrics.processes.labels().inc()
            return await process.wait()
        finally:
            writer.close()
            if member.admin_port is not None:
                self._metrics.processes.labels().dec()

    async def _back_off(self, member: Member, code: int) -> None:
        seconds = back_off_seconds(member.deaths_in_a_row)
        self._metrics.process_restarts_total.labels().inc()
        fields = {"process": member.index, "code": code, "again_in_seconds": seconds}
        log.error("a process died; it is started anew", extra={"fields": fields})
        with suppress(TimeoutError):
            await asyncio.wait_for(self._leaving.wait(), seconds)


def back_off_seconds(deaths_in_a_row: int) -> float:
    """How long a process is not started anew after it died: doubled each time, up to a bound."""
    return float(min(MOST_BACK_OFF_SECONDS, FIRST_BACK_OFF_SECONDS * 2 ** min(deaths_in_a_row - 1, 16)))


def reserve_port(host: str, port: int) -> socket.socket:
    """A bound socket that listens to nobody: it holds the port for processes that share it, and says which it is
    where `port` is 0. OSError when it is taken.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    reserved = socket.socket(family, kind, protocol)
    try:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
    except OSError:
        reserved.close()
        raise
    return reserved
