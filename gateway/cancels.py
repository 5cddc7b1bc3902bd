"""Cancels for engines that may die of one: so many a second at a worker, first one at a time, and none after two died.

Used where `faults.cancels_per_second` is set. A request that nobody waits for any longer runs on until its turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.addresses import WorkerAddress
from gateway.upstream_connection import Cause, Connection

TRIAL_SECONDS: Final = 0.25
"""How long a worker has to die of its first cancel before one is sent to another that has not been tried."""

DEATH_SECONDS: Final = 1.0
"""A worker that breaks its connections so soon after a cancel died of it."""

MOST_DEATHS: Final = 2
HELD_SECONDS: Final = 60.0
"""How long a death counts."""

_MOST_WORKERS: Final = 1024


class CancelPace:
    """When a request at a worker may be given up. Pure: times are monotonic seconds, given with each call."""

    def __init__(self, per_second: float) -> None:
        self._gap_seconds = 1 / per_second
        self._last: dict[WorkerAddress, float] = {}
        self._proven: set[WorkerAddress] = set()
        self._deaths: dict[WorkerAddress, float] = {}
        self._trial: tuple[WorkerAddress, float] | None = None

    def wait_seconds(self, target: WorkerAddress, now: float) -> float:
        """How long to wait before one may be sent to this worker; 0 for not at all. It may be longer in the end."""
        self._settle(now)
        if len(self._deaths) >= MOST_DEATHS:
            return min(self._deaths.values()) + HELD_SECONDS - now
        if target not in self._proven and self._trial is not None:
            return self._trial[1] - now
        last = self._last.get(target)
        return max(0.0, last + self._gap_seconds - now) if last is not None else 0.0

    def cancelled(self, target: WorkerAddress, now: float) -> None:
        """One is sent."""
        self._last[target] = now
        if target not in self._proven:
            self._trial = (target, now + TRIAL_SECONDS)

    def broke(self, target: WorkerAddress, now: float) -> None:
        """A worker broke off what it was at work on."""
        last = self._last.get(target)
        if last is None or now - last > DEATH_SECONDS:
            return
        self._deaths[target] = now
        self._proven.discard(target)
        if self._trial is not None and self._trial[0] == target:
            self._trial = None

    def _settle(self, now: float) -> None:
        if self._trial is not None and now >= self._trial[1]:
            self._proven.add(self._trial[0])
            self._trial = None
        self._deaths = {target: at for target, at in self._deaths.items() if now - at < HELD_SECONDS}
        if len(self._last) > _MOST_WORKERS:
            self._last.clear()
            self._proven.clear()


class Cancels:
    """The requests that nobody waits for and that run on. `over` is handed each that ended by itself."""

    def __init__(self, per_second: float, over: Callable[[Connection], None]) -> None:
        self._pace = CancelPace(per_second)
        self._over = over
        self._waiting: dict[WorkerAddress, deque[Connection]] = {}
        self._tasks: dict[WorkerAddress, asyncio.Task[None]] = {}

    def takes(self, connection: Connection) -> bool:
        """Whether it runs on; otherwise it is to be closed now."""
        given_up = connection.fault is None or connection.fault.cause is Cause.CLIENT
        if connection.complete or connection.closed or not given_up:
            return False
        target, now = connection.target, asyncio.get_running_loop().time()
        if target not in self._waiting and self._pace.wait_seconds(target, now) <= 0:
            self._pace.cancelled(target, now)
            return False
        connection.run_on(lambda: self._ended(connection))
        self._waiting.setdefault(target, deque()).append(connection)
        if target not in self._tasks:
            self._tasks[target] = asyncio.create_task(self._send(target))
        return True

    def lost(self, connection: Connection) -> None:
        """A connection has ended; it was not closed here, where it still had work under way."""
        if connection.busy and connection.fault is None and not connection.complete:
            self._pace.broke(connection.target, asyncio.get_running_loop().time())
            self._ended(connection)

    def close(self) -> None:
        """Send no more: whatever runs is closed with the gateway."""
        for task in self._tasks.values():
            task.cancel()

    def _ended(self, connection: Connection) -> None:
        waiting = self._waiting.get(connection.target, ())
        if connection in waiting:
            self._waiting[connection.target].remove(connection)
            self._over(connection)

    async def _send(self, target: WorkerAddress) -> None:
        loop = asyncio.get_running_loop()
        waiting = self._waiting[target]
        while waiting:
            seconds = self._pace.wait_seconds(target, loop.time())
            if seconds > 0:
                await asyncio.sleep(seconds)
                continue
            self._pace.cancelled(target, loop.time())
            connection = waiting.popleft()
            connection.abort()
            self._over(connection)
        del self._waiting[target], self._tasks[target]
