"""Workers that leave: their streams may end in their own time, until a deadline cuts them off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from gateway.fleet import Change, ChangeKind, Fleet
from gateway.upstream import Upstream
from gateway.worker_state import Worker

log: Final = logging.getLogger("homing.departures")


class Departures:
    """One timer for each worker that drains: at its end what is still there gets an error event (`gateway_shutdown`).

    `seconds` is asked when a drain begins. A worker that is resumed, or removed, keeps what it has.
    """

    def __init__(self, fleet: Fleet, upstream: Upstream, seconds: Callable[[], float]) -> None:
        self._upstream = upstream
        self._seconds = seconds
        self._timers: dict[Worker, asyncio.TimerHandle] = {}
        fleet.on_change(self._fleet_changed)

    def close(self) -> None:
        """Wait for nobody any longer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _fleet_changed(self, change: Change) -> None:
        worker = change.worker
        if change.kind is ChangeKind.DRAINING:
            loop = asyncio.get_running_loop()
            self._timers[worker] = loop.call_later(self._seconds(), self._cut_off, worker)
        elif change.kind in (ChangeKind.RESUMED, ChangeKind.LEFT):
            timer = self._timers.pop(worker, None)
            if timer is not None:
                timer.cancel()

    def _cut_off(self, worker: Worker) -> None:
        self._timers.pop(worker, None)
        cut = self._upstream.cut_off(worker.backend.address)
        if cut:
            log.warning("worker leaves", extra={"fields": {"worker": worker.name, "requests_cut_off": cut}})
