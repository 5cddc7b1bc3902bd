"""Whether workers take requests at all: what /readyz says of a gateway that is well and can serve nobody."""

from __future__ import annotations

from typing import Final

RED_AFTER_SECONDS: Final = 10.0
"""So long no worker took a request, though some came."""


class Acceptance:
    """Told of every request that no worker took, and, after such a one, of the first that one did."""

    __slots__ = ("_last_refused_at", "refused_since")

    def __init__(self) -> None:
        self.refused_since: float | None = None
        self._last_refused_at = 0.0

    def refused(self, now: float) -> None:
        """No worker took a request."""
        if self.refused_since is None or now - self._last_refused_at > RED_AFTER_SECONDS:
            self.refused_since = now
        self._last_refused_at = now

    def accepted(self) -> None:
        """A worker has begun to answer one."""
        self.refused_since = None

    def fails(self, now: float) -> bool:
        """Whether nothing was taken for a while; without traffic nobody knows, and it is not said."""
        if self.refused_since is None or now - self._last_refused_at > RED_AFTER_SECONDS:
            return False
        return now - self.refused_since >= RED_AFTER_SECONDS
