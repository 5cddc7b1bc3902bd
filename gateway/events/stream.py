"""One stream of a worker's events: subscribed, caught up, repaired, decoded, and handed on a slice at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial

from gateway.events.decode import BadBatch, Decoder
from gateway.events.follower import Follower
from gateway.events.sockets import ReplayFailed, Sockets, Subscription
from gateway.events.sources import Source
from router.cache_events import CacheEvent, Cleared

SLICE_SECONDS = 0.002
"""So long the event loop may be kept at events before others get their turn."""

REPLAY_SECONDS = 3.0
"""How long a replay may be silent before it counts as failed."""

RETRY_SECONDS = 5.0

log = logging.getLogger("homing.events")


class Turns:
    """One slice at a time, however many streams have something to do."""

    def __init__(self, slice_seconds: float = SLICE_SECONDS) -> None:
        self._lock = asyncio.Lock()
        self._slice_seconds = slice_seconds
        self._ends_at = 0.0

    async def take(self, work: Callable[[], None]) -> None:
        """Do `work` now if the slice has room, else after the loop has turned."""
        async with self._lock:
            if time.perf_counter() >= self._ends_at:
                await asyncio.sleep(0)
                self._ends_at = time.perf_counter() + self._slice_seconds
            work()


class Stream:
    """Follows one source and tells `apply` and `clear`, which say what its rank holds.

    `clock` gives monotonic seconds, in which `heard_at` is when the stream last proved alive: a batch, or a replay
    that came to its end. `lag_seconds` is how old the last batch was when it was applied, by both sides' wall clocks.
    `caught_up` says that the replay socket was asked once, or that there is none; `bad_batches` counts those that
    could not be read, and `unread` says that what is known lacks one.
    """

    def __init__(
        self,
        source: Source,
        sockets: Sockets,
        turns: Turns,
        clock: Callable[[], float],
        *,
        catch_up_seconds: float,
        apply: Callable[[Sequence[CacheEvent], int], None],
        clear: Callable[[int], None],
    ) -> None:
        self.source = source
        self.caught_up = asyncio.Event()
        self.heard_at = clock()
        self.lag_seconds: float | None = None
        self.bad_batches = 0
        self.unread = False
        self.follower = Follower(self, can_ask=source.replay_endpoint is not None)
        self._sockets, self._turns, self._clock = sockets, turns, clock
        self._catch_up_seconds = catch_up_seconds
        self._apply_events, self._clear_rank = apply, clear
        self._decoder = Decoder()
        self._hurry = False
        self._failed_at: float | None = None

    async def run(self) -> None:
        """Follow until cancelled."""
        subscription = self._sockets.subscribe(self.source)
        try:
            self.follower.catch_up()
            while True:
                while self.follower.asks is not None:
                    await self._repair()
                self.caught_up.set()
                await self._listen(subscription)
        finally:
            subscription.close()

    def hurry(self) -> None:
        """Ask the replay socket soon: something should have been heard by now."""
        self._hurry = True

    # What the follower hands on

    def apply(self, payload: bytes) -> None:
        """One batch, in its turn. One that cannot be read leaves it unknown what the worker holds."""
        try:
            batch = self._decoder.decode(payload)
        except BadBatch as error:
            self.bad_batches += 1
            self.unread = True
            if self.bad_batches == 1:
                log.warning("a batch of KV events cannot be read: %s", error, extra={"fields": self._fields()})
            return
        self.lag_seconds = time.time() - batch.timestamp
        self.heard_at = self._clock()
        self._apply_events(batch.events, self.source.rank)
        if any(isinstance(event, Cleared) for event in batch.events):
            self.follower.complete, self.unread = True, False

    def clear(self) -> None:
        """What was told no longer holds."""
        self.unread = False
        self._clear_rank(self.source.rank)

    # How

    async def _listen(self, subscription: Subscription) -> None:
        """Take in the next batch; ask unprompted when there is none for long."""
        try:
            number, payload = await subscription.batch(min(self._catch_up_seconds, 0.5))
        except TimeoutError:
            self._look()
            return
        if subscription.broke():
            # A new life may have counted to just this number: the last one heard tells.
            self.follower.catch_up()
        await self._turns.take(partial(self.follower.hear, number, payload))

    def _look(self) -> None:
        now = self._clock()
        if self._failed_at is not None and now - self._failed_at < RETRY_SECONDS:
            return
        if self._failed_at is not None and not self.follower.complete:
            self.follower.start_over()  # nobody repeated the beginning: it may be had now
        elif self._hurry or now - self.heard_at >= self._catch_up_seconds:
            self.follower.catch_up()
        self._hurry = False

    async def _repair(self) -> None:
        """One question to the replay socket, and its answer as far as it is of use."""
        first, endpoint, question = self.follower.asks, self.source.replay_endpoint, self.follower.questions
        if first is None or endpoint is None:
            return
        try:
            async with aclosing(self._sockets.replay(endpoint, first, REPLAY_SECONDS)) as answer:
                async for number, payload in answer:
                    await self._turns.take(partial(self.follower.replayed, number, payload))
                    if self.follower.questions != question:
                        return
        except ReplayFailed as error:
            if self._failed_at is None:
                log.warning("KV events cannot be caught up: %s", error, extra={"fields": self._fields()})
            self._failed_at = self._clock()
            self.follower.replay_ended(whole=False)
            return
        self._failed_at = None
        self.heard_at = self._clock()
        self.follower.replay_ended(whole=True)

    def _fields(self) -> dict[str, object]:
        return {"endpoint": self.source.endpoint, "rank": self.source.rank}
