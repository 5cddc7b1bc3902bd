"""Eviction `lru`: what was given back longest ago goes first."""

from __future__ import annotations

from collections.abc import Iterator

from backends.free_queue import FreeQueue


class Lru(FreeQueue):
    """One queue. A hit takes its block out, and giving it back puts it last."""

    __slots__ = ()

    def __init__(self, _capacity_blocks: int) -> None:
        super().__init__()

    add = FreeQueue.append

    def queues(self) -> Iterator[FreeQueue]:
        """Itself."""
        yield self
