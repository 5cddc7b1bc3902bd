"""One worker followed: its streams, what they tell for each model, and whether that may be gone by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from gateway.events.sockets import Sockets
from gateway.events.sources import Source
from gateway.events.stream import Stream, Turns
from gateway.logs import tell_fault
from gateway.placement_settings import EventSettings
from router.cache_events import CacheEvent
from router.core import Prompt
from router.knowledge import Knowledge

CATCHING_UP = "catching up"
INCOMPLETE = "its beginning was not heard"
SILENT = "silent"
OTHER_BLOCKS = "its blocks do not fit the routing block"
UNREAD = "a batch could not be read"
BROKEN = "following it failed"
UNLIKE = "it does not show what was sent to it"

REPLAY_ANSWERS_SECONDS = 1.0
"""So long a suspected stream has to prove alive, by a batch or by a replay."""

UNLIKE_AFTER = 8
"""So many requests in a row that a talking worker did not show: it reads prompts otherwise than we do."""


log = logging.getLogger("homing.events")


class Following:
    """The streams of one worker and the knowledge that comes of them, by base model.

    `blocks` are the routing blocks of the models, in tokens. `changed` is called when what is known was cleared.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        blocks: Mapping[str, int],
        settings: EventSettings,
        sockets: Sockets,
        clock: Callable[[], float],
        turns: Turns,
        changed: Callable[[], None],
    ) -> None:
        self.blocks = dict(blocks)
        self.knowledge = {
            model: Knowledge(
                model,
                block_tokens,
                bound_blocks=settings.bound_blocks,
                shown_within_seconds=settings.silent_seconds,
            )
            for model, block_tokens in blocks.items()
        }
        self.streams = [
            Stream(
                source,
                sockets,
                turns,
                clock,
                catch_up_seconds=settings.catch_up_seconds,
                apply=self._apply,
                clear=self._clear,
            )
            for source in sources
        ]
        self._clock = clock
        self._silent_seconds = settings.silent_seconds
        self._changed = changed
        self._tasks: list[asyncio.Task[None]] = []
        self._shown = self._not_shown = 0
        self._unlike = 0
        self._suspected_at: float | None = None

    def start(self, name: str) -> None:
        """Open the streams."""
        self._tasks = [asyncio.create_task(stream.run(), name=f"events of {name}") for stream in self.streams]
        for task in self._tasks:
            task.add_done_callback(_tell_end)

    @property
    def broken(self) -> bool:
        """Whether a fault of our own has ended a stream."""
        return any(task.done() for task in self._tasks)

    def stop(self) -> None:
        """Close them, as soon as the loop turns; what is known is no longer gone by."""
        for knowledge in self.knowledge.values():
            knowledge.trusted = False
        for task in self._tasks:
            task.cancel()

    async def stopped(self) -> None:
        """Until the streams are closed."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def caught_up(self) -> None:
        """Until every stream has asked for what it had missed."""
        for stream in self.streams:
            await stream.caught_up.wait()

    @property
    def block_tokens(self) -> int | None:
        """The worker's own block where it does not fit the routing block, in tokens."""
        caches = (cache for knowledge in self.knowledge.values() for cache in knowledge.caches)
        return next((size for cache in caches if (size := cache.foreign_block_tokens)), None)

    def lacks(self, prompt: Prompt, predicted_tokens: int) -> bool:
        """Whether the worker may hold more of a prompt than was ever told: nothing was, or less than is believed."""
        told = max(knowledge.told(prompt.exact_blocks) for knowledge in self.knowledge.values())
        return not told or told * prompt.block_tokens < predicted_tokens

    def doubt(self) -> str | None:
        """Why what is known is not to be gone by now; None where it is. To be asked every so often."""
        now = self._clock()
        for knowledge in self.knowledge.values():
            knowledge.expire(now)
        silent = self._is_silent(now)
        if self.broken:
            return BROKEN
        if not all(stream.caught_up.is_set() for stream in self.streams):
            return CATCHING_UP
        if self.block_tokens is not None:
            return OTHER_BLOCKS
        if silent:
            return SILENT
        if any(stream.unread for stream in self.streams):
            return UNREAD
        if not all(stream.follower.complete for stream in self.streams):
            return INCOMPLETE
        return UNLIKE if self._unlike >= UNLIKE_AFTER else None

    def _is_silent(self, now: float) -> bool:
        """Whether requests were answered whose blocks no stream told of, and the replay socket is silent too."""
        shown = sum(knowledge.shown for knowledge in self.knowledge.values())
        not_shown = sum(knowledge.not_shown for knowledge in self.knowledge.values())
        fresh, self._not_shown = not_shown - self._not_shown, not_shown
        if shown > self._shown:
            self._shown, self._unlike = shown, 0
        heard_at = max(stream.heard_at for stream in self.streams)
        if self._suspected_at is None and fresh and now - heard_at >= self._silent_seconds:
            self._suspected_at = now
            for stream in self.streams:
                stream.hurry()
        elif self._suspected_at is None:
            self._unlike += fresh
        elif heard_at > self._suspected_at:
            self._suspected_at = None
        return self._suspected_at is not None and now - self._suspected_at >= REPLAY_ANSWERS_SECONDS

    def _apply(self, events: Sequence[CacheEvent], rank: int) -> None:
        for knowledge in self.knowledge.values():
            knowledge.apply(events, rank)

    def _clear(self, rank: int) -> None:
        for knowledge in self.knowledge.values():
            knowledge.clear(rank)
        self._changed()


def _tell_end(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        tell_fault(log, error, "while following KV events")
