"""Recording traffic for `homing replay`: from a request's bill to a line in a file, in a thread of its own.

The event loop hands over a tuple and goes on. Whatever goes wrong here (a slow disk, a full one, more requests than
can be written) costs lines, which are counted, and never a request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Final

from gateway.accounting import Bill
from gateway.metrics import Metrics
from gateway.recording.files import RecordFile
from gateway.recording.lines import SALT_BYTES, LineWriter, Served
from gateway.recording.queue import RecordQueue
from gateway.recording.sampling import in_sample
from gateway.settings import Record

FLUSH_SECONDS: Final = 0.5
"""Lines are written together this often."""

MOST_PAUSE_SECONDS: Final = 0.005
CLOSE_SECONDS: Final = 5.0
"""How long a stopping gateway waits for the last lines."""

log: Final = logging.getLogger("homing.record")


class Recorder:
    """`async with Recorder(...)` runs the thread; `record` is called for each bill that is closed.

    `base_model` names the model whose workers serve another (an adapter's base). `unix_time` gives Unix seconds.
    """

    def __init__(
        self,
        settings: Record,
        metrics: Metrics,
        base_model: Callable[[str], str],
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._base_model = base_model
        self._unix_time = unix_time
        self._queue = RecordQueue()
        self._writer = _Writer(settings, metrics, unix_time)
        self._thread = Thread(target=self._write_all, name="homing-record", daemon=True)

    async def __aenter__(self) -> Recorder:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def record(self, bill: Bill, now: float) -> None:
        """Take in a bill that is closed at `now` (its own clock's seconds); one that no worker saw is none of ours."""
        served = self._served(bill, now)
        if served is not None and not self._queue.put(served):
            self._metrics.recorded_requests_total.labels("queue_full").inc()

    def _served(self, bill: Bill, now: float) -> Served | None:
        call, prompt, placement, usage = bill.call, bill.prompt, bill.placement, bill.usage
        if call is None or prompt is None or placement is None or placement.worker is None:
            return None
        if call.batch:
            # Its usage counts every prompt of the batch, and the router saw the first.
            usage = None
        return Served(
            at_seconds=self._unix_time() - (now - bill.opened_at),
            tenant=bill.tenant_name,
            asked_model=call.model,
            model=self._base_model(call.model),
            prompt=prompt,
            key=placement.key,
            worker=placement.worker,
            code=bill.status,
            prompt_tokens=usage.prompt_tokens if usage is not None else prompt.tokens,
            output_tokens=usage.completion_tokens if usage is not None else None,
            ttft_seconds=bill.ttft_seconds,
            total_seconds=now - bill.opened_at,
            cached_tokens=usage.cached_tokens if usage is not None else None,
        )

    def _write_all(self) -> None:
        while not self._queue.closed:
            self._writer.write(self._queue.take(FLUSH_SECONDS))
        self._writer.write(self._queue.take(0.0))
        self._writer.close()


class _Writer:
    """The thread's own: samples, makes lines, keeps the file; its troubles are told once, until they are over."""

    def __init__(self, settings: Record, metrics: Metrics, unix_time: Callable[[], float]) -> None:
        self._settings = settings
        self._outcomes = metrics.recorded_requests_total
        self._unix_time = unix_time
        self._file: RecordFile | None = None
        self._lines = LineWriter(b"", settings.sample)
        self._in_trouble = False

    def write(self, batch: list[Served]) -> None:
        """Write the sampled ones of a batch, together."""
        sampled = [served for served in batch if self._takes(served)]
        if not sampled:
            return
        try:
            file = self._file_with_room()
            file.write(b"".join(map(self._line, sampled)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the next lines are to be written
            self._failed(error, len(sampled))
        else:
            self._outcomes.labels("written").inc(len(sampled))
            self._went_well()

    def close(self) -> None:
        """Leave the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _takes(self, served: Served) -> bool:
        taken = in_sample(served.key, self._settings.sample)
        if not taken:
            self._outcomes.labels("not_sampled").inc()
        return taken

    def _line(self, served: Served) -> bytes:
        began = time.perf_counter()
        line = self._lines.line(served)
        # Making lines holds the interpreter; as much time again is left to the event loop.
        time.sleep(min(MOST_PAUSE_SECONDS, time.perf_counter() - began))
        return line

    def _file_with_room(self) -> RecordFile:
        if self._file is not None and self._file.written_bytes >= self._settings.file_bytes:
            self.close()
        if self._file is None:
            file = RecordFile(Path(self._settings.path), self._settings.files)
            self._lines = LineWriter(os.urandom(SALT_BYTES), self._settings.sample)
            self._file = file
        if not self._file.written_bytes:
            self._file.write(self._lines.head(self._unix_time()))
        return self._file

    def _failed(self, error: Exception, lines: int) -> None:
        self._outcomes.labels("write_failed").inc(lines)
        self._lines.forget()
        if not self._in_trouble:
            self._in_trouble = True
            because = getattr(error, "strerror", None) or type(error).__name__
            fields = {"path": self._settings.path, "because": because}
            log.warning("recording fails; requests go on", extra={"fields": fields})

    def _went_well(self) -> None:
        if self._in_trouble:
            self._in_trouble = False
            log.info("recording goes on", extra={"fields": {"path": self._settings.path}})
