"""What a router assumes of replicas that it does not hear at the moment: their part of the queues and of the caches.

Each worker's own queue length, probed, stands for their news. It counts requests and not their prefill, so it is worth
less than news; and as every replica keeps to the same homes, a home holds more than this replica has sent there.
"""

from __future__ import annotations

from router.candidates import Candidates
from router.roster import Roster

HOME_SHARE = 0.9
"""The part of a prompt's prefill, beyond what it is known to hold, that its home is taken to be spared."""

REST_WEIGHT = 1.5
"""How much of a prefill is taken to be still ahead where others wait, in mean rests of a prefill."""

OTHERS_LOAD = 0.5
"""What an unheard replica's prefill counts against one's own in the price: the higher that is, the more it costs to
believe in blocks that the others' requests have driven out.
"""

_SMOOTHING = 0.02


def load_factor(apart_from: int) -> float:
    """By how much the load is more than what was seen, with so many replicas that are not heard."""
    return 1.0 + OTHERS_LOAD * apart_from


class PrefillSizes:
    """Mean and mean square of the prefills that were placed, seconds, decayed over about fifty."""

    __slots__ = ("_count", "_square", "mean_seconds")

    def __init__(self) -> None:
        self.mean_seconds = 0.0
        self._square = 0.0
        self._count = 0

    def observe(self, seconds: float) -> None:
        """A prefill of so many seconds was placed."""
        self._count += 1
        weight = max(_SMOOTHING, 1.0 / self._count)
        self.mean_seconds += weight * (seconds - self.mean_seconds)
        self._square += weight * (seconds * seconds - self._square)

    @property
    def rest_seconds(self) -> float:
        """What is left on average of the prefill that somebody finds being done: long ones are found more often."""
        return self._square / (2.0 * self.mean_seconds) if self.mean_seconds > 0 else 0.0


def add_unheard_waits(candidates: Candidates, roster: Roster, sizes: PrefillSizes) -> None:
    """Add to every wait that of the requests which the worker says are waiting and which nobody told of."""
    for index, (view, state) in enumerate(zip(roster.views, roster.states, strict=True)):
        if view.waiting:
            unheard = max(0, view.waiting - len(state.queue))
            candidates.wait[index] += unheard * sizes.mean_seconds + REST_WEIGHT * sizes.rest_seconds


def home_bonus_seconds(candidates: Candidates, roster: Roster, home: str | None, price: float) -> float:
    """By how much worse a home may look, since the others keep to it as well."""
    place = None if home is None else roster.position.get(home)
    return 0.0 if place is None else HOME_SHARE * price * candidates.own[place]
