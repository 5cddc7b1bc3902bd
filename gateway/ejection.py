"""When a worker that answers its probes may still not be used: ejection with back-off, trials, and panic.

Pure: monotonic seconds are arguments. A worker that is known to be dead (nobody listens, its probes fail, it hangs) is
no matter of this room: it is down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

FAILURES_TO_EJECT: Final = 3
"""So many attempts in a row that broke or stayed silent take a worker out."""

ERRORS_TO_EJECT: Final = 5
"""So many answers in a row that it failed do, too: of one request's fault there are not that many (Envoy's number)."""

DECAY_SECONDS: Final = 60.0
"""So long in good standing halves the next ejection."""

LIES_BELIEVED: Final = 2
"""So many returns after a good trial that no real answer followed: from then on a worker waits its ejection out."""

MOST_BUSY_SECONDS: Final = 30.0
"""The longest `retry-after` of a worker that is honoured: a promise of an hour says nothing about this minute."""

MOST_TIMES: Final = 32

WELL_AFTER_SECONDS: Final = 10.0
"""Without a failure for so long a worker is well: what another broke off may go there in any case."""

TRIAL_EVERY_SECONDS: Final = 0.75
"""Between two trials of a worker: it is back within a second of being well, and is not asked more than that tells."""


class EjectionRules(NamedTuple):
    """How long a worker is out, in seconds: `base` the first time, doubled each time up to `cap`; and which share of a
    model's workers (0 to 1) may be out before requests go to all that are not known to be dead."""

    base_seconds: float = 1.0
    cap_seconds: float = 60.0
    most_share: float = 0.5


class Standing:
    """How one worker stands. In, out (`out`), or back and not yet proven by an answer.

    Who is out is tried by its prober, one trial at a time, and is back with the first good one: a worker that is well
    again waits for no back-off. Only one whose trials have lied (good, and then no request was) waits it out.
    """

    __slots__ = (
        "_errors_in_a_row", "_failed_at", "_last_change_at", "_lies", "_proven", "_rules", "_times", "_tried_at",
        "_until", "busy_until", "failures_in_a_row", "out", "returned_at", "unsettled",
    )  # fmt: skip

    def __init__(self, rules: EjectionRules | None = None) -> None:
        self._rules = rules or EjectionRules()
        self.failures_in_a_row = 0
        self._errors_in_a_row = 0
        self.out = False
        self.unsettled = False
        """Whether an answer would change anything."""
        self.returned_at: float | None = None
        """When it came back, until it has its full share again."""
        self.busy_until: float | None = None
        """Until when it asked to be spared, if it did."""
        self._failed_at = self._tried_at = -math.inf
        self._times = 0
        self._until = 0.0
        self._last_change_at = 0.0
        self._proven = True
        self._lies = 0

    def answered(self, now: float) -> bool:
        """A request was answered well; True when that brings it back (it was out, and asked in a panic)."""
        self.failures_in_a_row = self._errors_in_a_row = 0
        self._proven, self._lies = True, 0
        self.unsettled = False
        return self.out and self._return(now)

    def failed(self, now: float) -> bool:
        """An attempt broke or stayed silent; True when that takes it out."""
        self.failures_in_a_row += 1
        self.unsettled = True
        self._failed_at = now
        if self.out or self.failures_in_a_row < FAILURES_TO_EJECT:
            return False
        self.eject(now)
        return True

    def erred(self, now: float) -> bool:
        """It answered that it failed; True when that takes it out."""
        self._errors_in_a_row += 1
        self.unsettled = True
        if self.out or self._errors_in_a_row < ERRORS_TO_EJECT:
            return False
        self.eject(now)
        return True

    def eject(self, now: float) -> None:
        """Out, for longer each time."""
        if not self._proven:
            self._lies += 1
        self._decay(now)
        self.out = self.unsettled = True
        self.returned_at = None
        self._until = now + self.ejection_seconds
        self._times = min(MOST_TIMES, self._times + 1)
        self._last_change_at = now

    @property
    def ejection_seconds(self) -> float:
        """How long the next ejection lasts for one who may not come back by a trial."""
        return min(self._rules.cap_seconds, self._rules.base_seconds * 2.0**self._times)

    def trial_due(self, now: float) -> bool:
        """Whether the prober is to try it now."""
        if not self.out or now - self._tried_at < TRIAL_EVERY_SECONDS:
            return False
        return self._lies < LIES_BELIEVED or now >= self._until

    def tried(self, now: float, *, good: bool) -> bool:
        """A trial ended; True when it is back."""
        self._tried_at = now
        if not self.out or not good:
            return False
        self._proven, self.unsettled = False, True
        return self._return(now)

    def busy(self, now: float, seconds: float) -> None:
        """It said that it has too much to do, and for how long."""
        self.busy_until = now + min(MOST_BUSY_SECONDS, seconds)
        self._failed_at = now

    def well(self, now: float) -> bool:
        """Whether nothing speaks against it, and nothing did for a while."""
        return not self.unsettled and self.busy_until is None and now - self._failed_at >= WELL_AFTER_SECONDS

    def rested(self, now: float) -> bool:
        """True when the time it asked for has just passed."""
        if self.busy_until is None or now < self.busy_until:
            return False
        self.busy_until = None
        return True

    def returns(self, now: float) -> None:
        """It is back from wherever it was: its share grows from here."""
        self.returned_at = self._last_change_at = now
        self.failures_in_a_row = self._errors_in_a_row = 0
        self.out = False

    def _return(self, now: float) -> bool:
        self.returns(now)
        return True

    def _decay(self, now: float) -> None:
        halvings = int((now - self._last_change_at) / DECAY_SECONDS)
        self._times = max(0, self._times - halvings)


class Fitness(Enum):
    """What is known of one worker of a model when a request looks for one."""

    FIT = "fit"
    BUSY = "busy"
    """It asked to be spared for a while."""
    OUT = "out"
    DEAD = "dead"


class Choice(NamedTuple):
    """Who may be used although something speaks against it, and whether that is a panic."""

    nevertheless: frozenset[int]
    panic: bool


def choose(workers: Sequence[Fitness], most_share: float) -> Choice:
    """Whom to use of a model's workers, by index, beyond those that are fit.

    When more than `most_share` cannot be used, those that are out are: they may be well, the dead are not. Who asked
    to be spared is, unless nobody else is left.
    """
    unusable = sum(each in (Fitness.OUT, Fitness.DEAD) for each in workers)
    panic = Fitness.OUT in workers and unusable > most_share * len(workers)
    usable = {Fitness.FIT, Fitness.OUT} if panic else {Fitness.FIT}
    if not any(each in usable for each in workers):
        usable.add(Fitness.BUSY)
    return Choice(frozenset(i for i, each in enumerate(workers) if each in usable and each is not Fitness.FIT), panic)


def slow_start_bound(bound: int, returned_at: float, now: float, seconds: float) -> int:
    """What of `bound` requests in flight a worker may have that came back at `returned_at`: a share that grows in
    `seconds`, at least one."""
    share = min(1.0, max(0.0, (now - returned_at) / seconds))
    return max(1, int(bound * share))
