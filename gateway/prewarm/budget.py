"""How much of a worker prewarming may take: seconds of its prefill, until a deadline."""

from __future__ import annotations


class Budget:
    """Prefill seconds that may be spent at one worker for one reason, and until when (monotonic seconds)."""

    def __init__(self, seconds: float, deadline: float) -> None:
        self._left_seconds = seconds
        self.spent_seconds = 0.0
        self.deadline = deadline

    def allows(self, seconds: float, now: float) -> bool:
        """Whether so much may be spent now."""
        return now < self.deadline and seconds <= self._left_seconds

    def why_not(self, now: float) -> str:
        """The reason that metrics give for what is not done."""
        return "deadline" if now >= self.deadline else "budget"

    def spend(self, seconds: float) -> None:
        """So much was spent, or will be."""
        self._left_seconds -= seconds
        self.spent_seconds += seconds
