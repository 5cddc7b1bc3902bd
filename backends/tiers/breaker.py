"""A place that failed is left alone for a while, longer each time, until it works again."""

from __future__ import annotations

from collections.abc import Callable

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0


class Breaker:
    """Open (`resting`) after `failures` failures in a row; then one try at a time shows whether it works again.

    Threads may share one: the worst that a race does is one try more.
    """

    def __init__(self, clock: Callable[[], float], *, failures: int = 1) -> None:
        self._clock = clock
        self._allowed = failures
        self._failed = 0
        self._rest_seconds = FIRST_REST_SECONDS
        self._rests_until = 0.0

    @property
    def resting(self) -> bool:
        """Whether it is to be left alone now."""
        return self._clock() < self._rests_until

    def worked(self) -> None:
        """It did what was asked."""
        self._failed = 0
        self._rest_seconds = FIRST_REST_SECONDS
        self._rests_until = 0.0

    def failed(self) -> None:
        """It did not."""
        self._failed += 1
        if self._failed >= self._allowed:
            self._rests_until = self._clock() + self._rest_seconds
            self._rest_seconds = min(2 * self._rest_seconds, LONGEST_REST_SECONDS)
