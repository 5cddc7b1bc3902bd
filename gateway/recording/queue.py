"""What waits to be written: filled by the event loop without waiting, emptied by a thread, bounded in both units."""

from __future__ import annotations

from threading import Condition

from gateway.recording.lines import Served

MOST_REQUESTS = 4096
MOST_BLOCKS = 2**18
"""References to the hashes of waiting requests: a few MB; the hashes themselves are mostly the prompt memo's."""


class RecordQueue:
    """Served requests in their order."""

    def __init__(self, most_requests: int = MOST_REQUESTS, most_blocks: int = MOST_BLOCKS) -> None:
        self._most_requests = most_requests
        self._most_blocks = most_blocks
        self._changed = Condition()
        self._waiting: list[Served] = []
        self._blocks = 0
        self._closed = False

    def put(self, served: Served) -> bool:
        """Take one in; False when there is no room. An empty queue has room for any."""
        blocks = len(served.prompt.exact_blocks) + len(served.prompt.key_blocks)
        with self._changed:
            full = len(self._waiting) >= self._most_requests or self._blocks + blocks > self._most_blocks
            if self._closed or (full and self._waiting):
                return False
            self._waiting.append(served)
            self._blocks += blocks
            if self._half_full:
                self._changed.notify()
        return True

    def take(self, patience_seconds: float) -> list[Served]:
        """All that wait, once it is half full, closed, or the patience is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._half_full, patience_seconds)
            waiting, self._waiting, self._blocks = self._waiting, [], 0
        return waiting

    def close(self) -> None:
        """Nothing more comes; `take` does not wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    @property
    def closed(self) -> bool:
        """Whether nothing more comes."""
        return self._closed

    @property
    def _half_full(self) -> bool:
        return len(self._waiting) * 2 >= self._most_requests or self._blocks * 2 >= self._most_blocks
