"""Background tasks that must not stay dead: a fault of our own ends one, and it is begun again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gateway.logs import tell_fault
from gateway.metrics import Metrics

FIRST_PAUSE_SECONDS: Final = 0.05
MOST_PAUSE_SECONDS: Final = 1.0
"""Between two beginnings of a task that keeps dying."""

WELL_AFTER_SECONDS: Final = 2.0
"""A task that has run so long since its last death is alive again."""

DEAD_AFTER_SECONDS: Final = 5.0
"""A critical task that was down for so long makes /livez say no."""

CANCEL_AGAIN_SECONDS: Final = 0.2

log: Final = logging.getLogger("homing.tasks")

Work = Callable[[], Awaitable[None]]


class Supervisor:
    """Begins tasks, begins them again when a fault ends them, and knows which are down. `clock`: monotonic seconds."""

    def __init__(self, metrics: Metrics | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._down_since: dict[str, float] = {}
        self._begun_at: dict[str, float] = {}

    def start(self, kind: str, work: Work, *, name: str = "") -> asyncio.Task[None]:
        """A task that runs `work` until it returns or the task is cancelled. `kind` labels its metric, `name` tells it
        from others of its kind."""
        return asyncio.create_task(self._keep(kind, work, name or kind), name=name or kind)

    def dead(self, now: float | None = None) -> tuple[str, ...]:
        """The tasks that have been down for too long, one that dies again and again included."""
        when = self._clock() if now is None else now
        return tuple(name for name in tuple(self._down_since) if self._down_for(name, when) >= DEAD_AFTER_SECONDS)

    async def _keep(self, kind: str, work: Work, name: str) -> None:
        pause = FIRST_PAUSE_SECONDS
        try:
            while True:
                self._begun_at[name] = self._clock()
                try:
                    await work()
                except asyncio.CancelledError as error:
                    if _is_cancelled():
                        raise
                    pause = self._died(kind, name, error, pause)
                except Exception as error:  # noqa: BLE001 - whatever it is, the task must go on
                    pause = self._died(kind, name, error, pause)
                else:
                    return
                await asyncio.sleep(pause)
        finally:
            self._down_since.pop(name, None)
            self._begun_at.pop(name, None)

    def _died(self, kind: str, name: str, error: BaseException, pause: float) -> float:
        """Note a death and say it once; returns how long to wait before the next beginning."""
        now = self._clock()
        self._down_for(name, now)
        first = name not in self._down_since
        self._down_since.setdefault(name, now)
        if self._metrics is not None:
            self._metrics.task_restarts_total.labels(kind).inc()
        if first:
            tell_fault(log, error, f"ended the task {name}, which is begun again")
        return FIRST_PAUSE_SECONDS if first else min(MOST_PAUSE_SECONDS, 2 * pause)

    def _down_for(self, name: str, now: float) -> float:
        since = self._down_since.get(name)
        if since is None:
            return 0.0
        if now - self._begun_at.get(name, now) >= WELL_AFTER_SECONDS:
            del self._down_since[name]
            return 0.0
        return now - since


async def end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks until they have ended: a library may swallow a cancellation that comes at a bad moment. What they
    raise is nobody's any more."""
    begun = [task for task in tasks if task is not None]
    pending = {task for task in begun if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*begun, return_exceptions=True)


def _is_cancelled() -> bool:
    """Whether this very task was asked to end, and not only something it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
