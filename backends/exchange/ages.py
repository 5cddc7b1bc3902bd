"""When what is cached was stored: a journal for the map, switched on with it."""

from __future__ import annotations

from collections.abc import Callable

from backends.hashing import BlockKey


class Ages:
    """A `Journal` (backends/journal.py). Copies have the age of the first one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._stored: dict[bytes, float] = {}

    def stored(self, key: BlockKey, block_id: int) -> None:  # noqa: ARG002 - the protocol's
        """Its age is 0."""
        self._stored[key.digest] = self.clock()

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        """Nothing."""

    def removed(self, key: BlockKey) -> None:
        """It has no age any more."""
        self._stored.pop(key.digest, None)

    def cleared(self) -> None:
        """Nothing has an age."""
        self._stored.clear()

    def seconds(self, digest: bytes) -> float | None:
        """Since it was stored; None when it is not cached."""
        stored = self._stored.get(digest)
        return None if stored is None else self.clock() - stored
