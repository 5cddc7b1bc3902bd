"""Somebody else who wants to hear which blocks requests found, beside the tiers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from backends.hashing import BlockKey
from backends.tiers.interface import Fetched, Offload


class SeenToo:
    """An `Offload` (backends/tiers/interface.py) that passes everything on, and what was seen to `hear` as well."""

    def __init__(self, offload: Offload, hear: Callable[[Sequence[BlockKey]], None]) -> None:
        self._offload = offload
        self._hear = hear
        self.brings = offload.brings
        self.start = offload.start
        self.forget = offload.forget
        self.stepped = offload.stepped
        self.wait = offload.wait
        self.reset = offload.reset
        self.close = offload.close

    def fetch(self, request_id: str, keys: Sequence[BlockKey]) -> Fetched:
        """The offload's."""
        return self._offload.fetch(request_id, keys)

    def seen(self, keys: Sequence[BlockKey]) -> None:
        """Both hear it."""
        self._hear(keys)
        self._offload.seen(keys)
