"""How often a content was asked for again: the selective write policy keeps only what was hit twice."""

from __future__ import annotations

from collections import OrderedDict

MOST_NAMES = 200_000
"""About 40 MB; the ones not seen for longest are forgotten."""


class Sightings:
    """Hits per block name; being computed the first time is no hit, being computed again would have been one."""

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self._hits: OrderedDict[bytes, int] = OrderedDict()
        self._most_names = most_names

    def computed(self, name: bytes) -> None:
        """The content came to be, or came back."""
        self._hits[name] = self._hits.pop(name, -1) + 1
        if len(self._hits) > self._most_names:
            self._hits.popitem(last=False)

    def hit(self, name: bytes) -> None:
        """The content was found where it was."""
        if name in self._hits:
            self._hits[name] += 1
            self._hits.move_to_end(name)

    def hits(self, name: bytes) -> int:
        """So far."""
        return self._hits.get(name, 0)
