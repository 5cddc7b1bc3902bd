"""Requests sent to one worker that have not yet produced a first token: how long a newcomer would wait.

The worker is taken to prefill in order of arrival. The head began when it became head; its remaining time is its
estimate less the time since then, and the next begins when any first token arrives. A request whose first token
nobody will see (a plain answer arrives whole) is taken to have had it when its estimate ran out.
"""

from __future__ import annotations

from collections import OrderedDict

Waiting = tuple[float, bool]
"""One request ahead: the seconds of prefill it is estimated to need, and whether its first token will go unseen."""


class VirtualQueue:
    """The estimated work in front of one worker, in seconds of prefill."""

    __slots__ = ("_began", "_entries", "_total")

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Waiting] = OrderedDict()
        self._began = 0.0
        self._total = 0.0

    def __len__(self) -> int:
        """How many requests are waiting or being prefilled, as far as is known."""
        return len(self._entries)

    def __contains__(self, request_id: str) -> bool:
        """Whether the request is still waiting for its first token."""
        return request_id in self._entries

    def request_ids(self) -> list[str]:
        """Who waits, the head first."""
        return list(self._entries)

    def push(self, request_id: str, seconds: float, now: float, *, silent: bool = False) -> None:
        """Append a request that is estimated to need `seconds` of prefill; an id already here is replaced."""
        entries = self._entries
        if request_id in entries:
            self.remove(request_id, now)
        if entries:
            self._settle(now)
        if not entries:
            self._began, self._total = now, 0.0
        entries[request_id] = (seconds, silent)
        self._total += seconds

    def started(self, request_id: str, now: float) -> bool:
        """A first token arrived: the request leaves and the next one begins; False if it was not here."""
        entry = self._entries.pop(request_id, None)
        if entry is None:
            return False
        self._total = self._total - entry[0] if self._entries else 0.0
        self._began = now
        return True

    def remove(self, request_id: str, now: float) -> bool:
        """The request will not be prefilled (any more): it leaves; False if it was not here."""
        if request_id not in self._entries:
            return False
        if next(iter(self._entries)) == request_id:
            self._began = now
        self._take(request_id)
        return True

    def wait(self, now: float) -> float:
        """Estimated seconds until a request that is sent now would begin to be prefilled."""
        if not self._entries:
            return 0.0
        elapsed, total = now - self._began, self._total
        if elapsed < 0.0:
            elapsed = 0.0
        for seconds, silent in self._entries.values():
            if elapsed < seconds:
                return total - elapsed if total > elapsed else 0.0
            total -= seconds
            if not silent:
                break
            elapsed -= seconds
        return max(0.0, total)

    def clear(self) -> None:
        """Forget everybody."""
        self._entries.clear()
        self._total = 0.0

    def check_integrity(self) -> None:
        """Raise AssertionError unless the total is the sum of what waits."""
        total = sum(seconds for seconds, _ in self._entries.values())
        if abs(total - self._total) > 1e-6 * max(1.0, total):
            raise AssertionError("the virtual queue's total is not the sum of its entries")

    def _take(self, request_id: str) -> None:
        self._total -= self._entries.pop(request_id)[0]
        if not self._entries:
            self._total = 0.0

    def _settle(self, now: float) -> None:
        """Let silent heads leave whose time has run out."""
        while self._entries:
            request_id, (seconds, silent) = next(iter(self._entries.items()))
            if not silent or now - self._began < seconds:
                return
            self._began += seconds
            self._take(request_id)
