"""A thread that does one thing after another for a tier, so that the engine never waits for a device."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger("homing.worker")

Job = Callable[[], None]


class Lane:
    """Jobs run in the order in which they were put. The thread starts with the first one and never dies of one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, job: Job) -> None:
        """Have `job` run. To be called from one thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def close(self, timeout_seconds: float) -> None:
        """Let what is queued run for so long, then leave the thread to the end of the process."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout_seconds)
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                logger.exception("A job of %s failed; the blocks it was about are missing", self._name)
