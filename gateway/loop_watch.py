"""Watches that the event loop turns: how late it wakes a timer is how late it does everything else."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from gateway.metrics import Metrics
from gateway.supervise import Supervisor, end

TICK_SECONDS = 0.1
LAG_BOUND_SECONDS = 5.0
"""Beyond this the process is as good as hung: /livez says so."""

WINDOW_TICKS = 50


class LoopWatch:
    """A timer that measures its own lateness; `clock` gives monotonic seconds."""

    def __init__(
        self, metrics: Metrics, clock: Callable[[], float] = time.monotonic, tasks: Supervisor | None = None
    ) -> None:
        self._tasks = tasks or Supervisor(metrics, clock)
        self._metrics = metrics
        self._clock = clock
        self._lags: deque[float] = deque(maxlen=WINDOW_TICKS)
        self._due_at = clock()
        self._task: asyncio.Task[None] | None = None
        metrics.before_scrape(self._count_tasks)

    async def __aenter__(self) -> LoopWatch:
        self._task = self._tasks.start("loop watch", self._tick)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(self._task)

    @property
    def worst_lag_seconds(self) -> float:
        """The longest lateness of the last few seconds, what is late at this moment included."""
        return max(0.0, self._clock() - self._due_at, *self._lags)

    @property
    def turns(self) -> bool:
        """Whether the loop wakes its timers within the bound."""
        return self.worst_lag_seconds < LAG_BOUND_SECONDS

    def _count_tasks(self) -> None:
        if self._task is not None:
            self._metrics.event_loop_tasks.labels().set(len(asyncio.all_tasks(self._task.get_loop())))

    async def _tick(self) -> None:
        while True:
            self._due_at = self._clock() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            lag = max(0.0, self._clock() - self._due_at)
            self._lags.append(lag)
            self._metrics.event_loop_lag_seconds.labels().observe(lag)
