"""How many retries there may be: a share of the requests of the last seconds, so that an outage is not multiplied."""

from __future__ import annotations

from typing import Final

WINDOW_SECONDS: Final = 10
LEAST_RETRIES: Final = 3
"""So many in a window are always granted: a quiet gateway has no share to speak of."""

BACK_OFF_SECONDS: Final = 0.025
MOST_BACK_OFF_SECONDS: Final = 0.25


class RetryBudget:
    """Counts requests and retries by the second; monotonic seconds are arguments, and never go back.

    Within any window of `WINDOW_SECONDS` whole seconds, a retry is granted while those before it are fewer than `share`
    of the requests, or than `LEAST_RETRIES`. One that is sure to be answered is made without asking, and counts.
    """

    __slots__ = ("_requests", "_retries", "_second", "_share")

    def __init__(self, share: float = 0.2) -> None:
        self._share = share
        self._requests = [0] * WINDOW_SECONDS
        self._retries = [0] * WINDOW_SECONDS
        self._second = 0

    def request(self, now: float) -> None:
        """A request began."""
        second = int(now)
        if second != self._second:
            self._turn(second)
        self._requests[second % WINDOW_SECONDS] += 1

    def grant(self, now: float) -> bool:
        """Whether one more retry may be made; it counts from here."""
        if int(now) != self._second:
            self._turn(int(now))
        if sum(self._retries) >= max(LEAST_RETRIES, int(self._share * sum(self._requests))):
            return False
        self.made(now)
        return True

    def made(self, now: float) -> None:
        """A retry was made."""
        if int(now) != self._second:
            self._turn(int(now))
        self._retries[int(now) % WINDOW_SECONDS] += 1

    def _turn(self, second: int) -> None:
        """Forget the seconds that have left the window."""
        passed = min(WINDOW_SECONDS, max(0, second - self._second))
        for step in range(passed):
            place = (second - step) % WINDOW_SECONDS
            self._requests[place] = self._retries[place] = 0
        self._second = max(second, self._second)


def back_off_seconds(retry: int, chance: float) -> float:
    """How long to wait before the retry numbered `retry` (from 1), with full jitter: `chance` is from 0 to 1.

    At most 25 ms before the first, so that a worker that breaks costs its clients little; 250 ms in the end.
    """
    return chance * min(MOST_BACK_OFF_SECONDS, BACK_OFF_SECONDS * 2.0 ** (retry - 1))
