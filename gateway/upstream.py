"""The pool of connections to workers, and one attempt at one worker. No attempt is made twice here but for case C-18:
a kept connection that the worker closed at the very moment it was used again.
"""

from __future__ import annotations

import asyncio
import errno
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from gateway.addresses import WorkerAddress
from gateway.cancels import Cancels
from gateway.upstream_connection import Cause, Connection, UpstreamFault

STALE_AFTER_SECONDS: Final = 0.5
"""A kept connection that lay idle at least this long and breaks before any byte came back was closed by the worker's
keep-alive timer; one in brisk use was not, and its break counts as an attempt."""

KEEP_IDLE_SECONDS: Final = 4.0
"""Shorter than uvicorn's 5 s, so that mostly we are the ones to close."""

KEEP_IDLE_PER_WORKER: Final = 256

OWN_LATENESS_SECONDS: Final = 0.05
"""A deadline that is noticed later than this passed while the process did not run: what it waited for may be there."""

CONNECT_CHANCES: Final = 3


class Timeouts(NamedTuple):
    """Seconds allowed for the connection, for the first payload byte, and between two reads after it.

    An answer that is not streamed has its first byte when it is complete: `whole_answer_seconds` for that.
    """

    connect_seconds: float
    first_byte_seconds: float
    whole_answer_seconds: float
    idle_seconds: float


class Upstream:
    """Connections by worker. One timer for all of them watches the deadlines, while there are any."""

    def __init__(
        self,
        timeouts: Timeouts,
        *,
        keep_idle_seconds: float = KEEP_IDLE_SECONDS,
        stale_after_seconds: float = STALE_AFTER_SECONDS,
        cancels_per_second: float | None = None,
    ) -> None:
        """Cancels are sent at once, or so many a second to a worker (`gateway.cancels`)."""
        self._timeouts = timeouts
        self._keep_idle_seconds = keep_idle_seconds
        self._stale_after_seconds = stale_after_seconds
        self._idle: defaultdict[WorkerAddress, list[Connection]] = defaultdict(list)
        self._busy: set[Connection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._tick_seconds = min(0.15, min(timeouts.first_byte_seconds, timeouts.idle_seconds) / 10)
        self._closed = False
        self._cancels = Cancels(cancels_per_second, self.release) if cancels_per_second is not None else None
        self._on_close: list[Callable[[], None]] = []

    async def attempt(self, target: WorkerAddress, head: bytes, body: bytes, *, streams: bool = True) -> Connection:
        """Send one request and wait for its first payload byte (or its end); raises `UpstreamFault`.

        The caller owns the connection from here on and must `release` it, whatever happens.
        """
        connection = self._take_idle(target)
        if connection is not None:
            idle_since = connection.last_byte_at
            try:
                return await self._exchange(connection, head, body, streams=streams)
            except UpstreamFault as fault:
                idle_seconds = connection.sent_at - idle_since
                stale = fault.cause is Cause.BROKE and not fault.answered and idle_seconds >= self._stale_after_seconds
                if not stale:
                    raise
        return await self._exchange(await self._connect(target), head, body, streams=streams)

    async def listens(self, target: WorkerAddress) -> bool:
        """Whether anybody accepts a connection there now; yes where we have no descriptor to find out with."""
        try:
            connection = await self._connect(target)
        except UpstreamFault as fault:
            return fault.cause is not Cause.REFUSED
        connection.abort()
        return True

    def configure(self, timeouts: Timeouts) -> None:
        """Other timeouts for exchanges that begin from now on."""
        self._timeouts = timeouts

    def release(self, connection: Connection) -> None:
        """Give a connection back: kept when its exchange ended cleanly, otherwise closed, at once or in its turn."""
        if self._cancels is not None and not self._closed and self._cancels.takes(connection):
            return
        self._busy.discard(connection)
        idle = self._idle[connection.target]
        if connection.reusable and not self._closed and len(idle) < KEEP_IDLE_PER_WORKER:
            connection.rest()
            idle.append(connection)
            if self._timer is None:
                self._watch()
        else:
            connection.abort()

    def on_close(self, listener: Callable[[], None]) -> None:
        """Call `listener` at the end: nothing begins here any more."""
        self._on_close.append(listener)

    def close(self) -> None:
        """Close every connection; exchanges under way fail."""
        self._closed = True
        for listener in self._on_close:
            listener()
        if self._cancels is not None:
            self._cancels.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connections in self._idle.values():
            for connection in tuple(connections):
                connection.abort()
        self._idle.clear()
        for connection in tuple(self._busy):
            connection.fail(Cause.SHUTDOWN, "the gateway shuts down")
            connection.abort()

    @property
    def idle_count(self) -> int:
        """Connections kept for later."""
        return sum(map(len, self._idle.values()))

    @property
    def busy_count(self) -> int:
        """Connections with an exchange under way."""
        return len(self._busy)

    def busy_at(self, target: WorkerAddress) -> tuple[Connection, ...]:
        """The connections to one worker with an exchange under way."""
        return tuple(connection for connection in self._busy if connection.target == target)

    def moves(self, since: float) -> bool:
        """Whether a byte of some answer under way has come after `since` (the loop's seconds)."""
        return any(connection.answered and connection.last_byte_at > since for connection in self._busy)

    def cut_off(self, target: WorkerAddress) -> int:
        """Fail every exchange with one worker: their callers are told so. Returns how many there were."""
        cut = self.busy_at(target)
        for connection in cut:
            connection.fail(Cause.SHUTDOWN, "the worker leaves")
            connection.abort()
        return len(cut)

    def check_integrity(self) -> None:
        """Raise AssertionError when a kept connection is closed, in use, or filed under another worker."""
        for target, connections in self._idle.items():
            for connection in connections:
                if connection.closed or connection.busy or connection.target != target or connection in self._busy:
                    raise AssertionError(f"a kept connection to {target} is not idle there")

    async def _exchange(self, connection: Connection, head: bytes, body: bytes, *, streams: bool) -> Connection:
        if self._closed:
            # Nobody watches deadlines any more, and nobody would end it.
            connection.abort()
            raise UpstreamFault(Cause.SHUTDOWN, "the gateway shuts down", answered=False)
        self._busy.add(connection)
        if self._timer is None:
            self._watch()
        connection.streams = streams
        connection.send(
            head,
            body,
            first_byte_seconds=self._timeouts.first_byte_seconds if streams else self._timeouts.whole_answer_seconds,
            idle_seconds=self._timeouts.idle_seconds,
        )
        try:
            await connection.answer()
        except BaseException:
            self.release(connection)
            raise
        return connection

    def _take_idle(self, target: WorkerAddress) -> Connection | None:
        """The one used last: it is the least likely to be stale."""
        connections = self._idle.get(target)
        while connections:
            connection = connections.pop()
            if not connection.ended:
                return connection
        return None

    async def _connect(self, target: WorkerAddress) -> Connection:
        """A new connection. Time that this process itself was late is no fault of the worker: it is given once more."""
        loop, seconds = asyncio.get_running_loop(), self._timeouts.connect_seconds
        for chance in range(CONNECT_CHANCES):
            deadline = loop.time() + seconds
            try:
                async with asyncio.timeout_at(deadline):
                    _, connection = await loop.create_connection(
                        lambda: Connection(target, self._forget), target.host, target.port
                    )
                    return connection
            except TimeoutError:
                if loop.time() - deadline < OWN_LATENESS_SECONDS or chance == CONNECT_CHANCES - 1:
                    break
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise UpstreamFault(Cause.FILES, "no descriptor left", answered=False) from None
                raise UpstreamFault(Cause.REFUSED, f"no connection: {error.strerror}", answered=False) from None
        raise UpstreamFault(Cause.REFUSED, "no connection in time", answered=False)

    def _forget(self, connection: Connection) -> None:
        if self._cancels is not None:
            self._cancels.lost(connection)
        connections = self._idle.get(connection.target)
        if connections and connection in connections:
            connections.remove(connection)

    def _watch(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for connection in tuple(self._busy):
            connection.expire(now)
        for connections in self._idle.values():
            while connections and now - connections[0].last_byte_at > self._keep_idle_seconds:
                connections.pop(0).abort()
        if self._busy or any(self._idle.values()):
            self._watch()
