"""This replica among the others: joined while Redis is there, alone while it is not, and never in a request's way.

Two loops run while joined. One adds news to the stream, a batch every few milliseconds while there is any; the other
reads the stream, our own batches included, and so knows what everybody has heard. The third failure in a row of
either ends both: from then on Redis is asked once a second, in the background, until it answers and what was missed is
read.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from types import TracebackType
from typing import Final

from gateway.logs import tell_fault
from gateway.metrics import Metrics
from gateway.shared.link import ENTRIES_PER_PAGE, Link, LinkError
from gateway.shared.outbox import Outbox
from gateway.shared.stream import Stream
from gateway.supervise import Supervisor, end

FLUSH_SECONDS: Final = 0.003
"""Between two batches: news goes out at once unless some has just gone. With the pause between two reads: 5 ms at most.
A few milliseconds count: every one of them is a time in which two replicas may give one worker their next prompt."""

READ_PAUSE_SECONDS: Final = 0.002
READ_WAIT_SECONDS: Final = 0.5
TICK_SECONDS: Final = 1.0
TEND_EVERY_TICKS: Final = 5
PROBE_SECONDS: Final = 1.0
FAILURES_TO_ALONE: Final = 3
FAILURE_PAUSE_SECONDS: Final = 0.01
GOODBYE_SECONDS: Final = 0.1
_SHORTER: Final = 4

ALONE, JOINING, JOINED = "alone", "joining", "joined"
STATES: Final = (ALONE, JOINING, JOINED)

log = logging.getLogger("homing.shared")


class Replicas:
    """Runs as `async with`; `stream` says and hears, `link` carries. `on_state` is told whether it is joined."""

    def __init__(
        self,
        link: Link,
        outbox: Outbox,
        stream: Stream,
        metrics: Metrics,
        something: asyncio.Event,
        on_state: Callable[[bool], None],
        supervisor: Supervisor | None = None,
    ) -> None:
        """`something` is set whenever there is news to tell."""
        self._supervisor = supervisor or Supervisor(metrics)
        self._link = link
        self._outbox = outbox
        self._stream = stream
        self._metrics = metrics
        self._on_state = on_state
        self._something = something
        self._first_join = asyncio.Event()
        self._page_entries = ENTRIES_PER_PAGE
        self._ticks = 0
        self._beat = False
        self._told: str | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._show(ALONE)

    async def __aenter__(self) -> Replicas:
        self._tasks = (
            self._supervisor.start("replicas", self._live),
            self._supervisor.start("replicas tick", self._tick),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        joined = self.state == JOINED
        await end(*self._tasks)
        if joined:
            await self._say_goodbye()
        await self._link.cut()

    async def first_join(self, seconds: float) -> bool:
        """Wait until what the others know has been read, at most so long; whether that came about."""
        try:
            await asyncio.wait_for(self._first_join.wait(), seconds)
        except TimeoutError:
            return False
        return True

    # The life of a replica

    async def _live(self) -> None:
        while True:
            because = "an error"
            try:
                await self._take_part()
            except LinkError as error:
                because = str(error)
            except Exception as error:  # noqa: BLE001 - whatever Redis holds, requests go on; that entry has been passed
                tell_fault(log, error, "while reading news")
            await self._link.cut()
            self._enter(ALONE, because)
            # Not cryptography: only so that replicas do not come back all at once.
            await asyncio.sleep(PROBE_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311

    async def _take_part(self) -> None:
        self._stream.set_clock(await self._link.time())
        if not self._page_entries:
            # Not even one entry came in time, though Redis answers: it is too long, and would keep all alone for good.
            self._stream.pass_over()
            self._page_entries = ENTRIES_PER_PAGE
        self._enter(JOINING)
        await self._catch_up()
        self._outbox.tell_afresh()
        self._enter(JOINED)
        self._first_join.set()
        self._something.set()
        loops = [asyncio.create_task(self._publish()), asyncio.create_task(self._listen())]
        try:
            await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(*loops)
        for loop in loops:
            if not loop.cancelled():
                loop.result()

    async def _catch_up(self) -> None:
        while not await self._read(wait_seconds=0.0, late=True) and not self._stream.caught_up():
            pass

    async def _listen(self) -> None:
        failures = 0  # of reading only: who can add and not read hears nobody
        while True:
            try:
                at_present = await self._read(wait_seconds=READ_WAIT_SECONDS, late=False)
            except LinkError as error:
                failures = await self._failed(error, failures)
            else:
                failures = 0
                if at_present and self._stream.deaf():
                    self._stream.start_over()
                    raise LinkError("own news does not come back")
                await asyncio.sleep(READ_PAUSE_SECONDS)

    async def _read(self, *, wait_seconds: float, late: bool) -> bool:
        """Hear a page, a shorter one after each that did not come; whether the present was reached."""
        most_entries = max(1, self._page_entries)
        try:
            entries = await self._link.read(self._stream.after, wait_seconds, most_entries)
        except LinkError:
            self._page_entries //= _SHORTER
            raise
        self._page_entries = min(ENTRIES_PER_PAGE, most_entries * _SHORTER)
        for entry in entries:
            self._stream.hear(entry, late=late)
            if self._stream.long_at_it():
                await asyncio.sleep(0)
        return len(entries) < most_entries

    async def _publish(self) -> None:
        failures = 0
        while True:
            await self._something.wait()
            self._something.clear()
            try:
                await self._flush()
            except LinkError as error:
                failures = await self._failed(error, failures)
                self._something.set()
            else:
                failures = 0
            await asyncio.sleep(FLUSH_SECONDS)

    async def _flush(self) -> None:
        """Tell all that waits at this moment; what comes meanwhile waits for the next time, in company."""
        more = self._beat or self._outbox.afresh or len(self._outbox) > 0
        self._beat = False
        while more:
            parcel = self._stream.parcel()
            more = len(self._outbox) > 0
            try:
                value = self._stream.batch(parcel)
                await self._link.add(value, self._stream.keep_entries)
            except BaseException:
                self._outbox.put_back(parcel)
                raise
            self._stream.sent(parcel, value)
        if self._ticks >= TEND_EVERY_TICKS:
            self._ticks = 0
            self._stream.has_entries(await self._link.tend(self._stream.expire_seconds))

    async def _failed(self, error: LinkError, before: int) -> int:
        """One more failure after so many in a row; how many that makes, unless it is one too many."""
        self._metrics.redis_errors_total.labels().inc()
        if before + 1 >= FAILURES_TO_ALONE:
            raise error
        await asyncio.sleep(FAILURE_PAUSE_SECONDS)
        return before + 1

    async def _tick(self) -> None:
        """Each second: a sign of life, and whoever gave none for long is forgotten."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self._ticks += 1
            if self.state != JOINING:
                self._stream.sweep()
            self._beat = True
            self._something.set()

    async def _say_goodbye(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._link.add(self._stream.goodbye(), self._stream.keep_entries)
        except (LinkError, TimeoutError):
            pass

    def _enter(self, state: str, because: str = "") -> None:
        self._show(state)
        if state == JOINING or state == self._told:
            return
        self._told = state
        self._on_state(state == JOINED)
        if state == JOINED:
            log.info("joined the other replicas", extra={"fields": {"replicas": self._stream.others}})
        else:
            log.warning("going on alone, without the other replicas", extra={"fields": {"because": because}})

    def _show(self, state: str) -> None:
        self.state = state
        for each in STATES:
            self._metrics.replica_state.labels(each).set(each == state)
