"""How busy a fleet is with prefill (ρ̂), and what that makes a second of prefill worth (α)."""

from __future__ import annotations

from math import exp, expm1

_FULLEST = 0.99

_LEAST_SEEN = 1 / 6
"""Part of the window that is taken to have been seen at the least: a first burst is not a load."""


class Utilisation:
    """Predicted prefill seconds placed lately, decayed over `window_seconds`, against what the workers could do.

    What was placed since the first placement stands for the whole window: a router that has just started would
    otherwise take a busy fleet for an idle one, and tear prompts from their caches, until a window has passed.
    """

    __slots__ = ("_at", "_price_limit", "_since", "_window", "_work")

    def __init__(self, window_seconds: float, price_limit: float) -> None:
        self._window = window_seconds
        self._price_limit = price_limit
        self._work = 0.0
        self._at = 0.0
        self._since: float | None = None

    def add(self, seconds: float, now: float) -> None:
        """So much prefill was sent to the fleet at `now`."""
        if self._since is None or now < self._since:
            self._since = now
        if now <= self._at:
            self._work += seconds
        else:
            self._work = self._work * exp((self._at - now) / self._window) + seconds
            self._at = now

    def take_back(self, seconds: float, placed_at: float, now: float) -> None:
        """Work that was added at `placed_at` will not be done after all."""
        self.add(-seconds * exp((placed_at - now) / self._window), now)
        self._work = max(0.0, self._work)

    def rescale(self, factor: float) -> None:
        """Prefills turn out to take `factor` times what was predicted: so did those that were added."""
        self._work *= factor

    def seen_load(self, now: float) -> float:
        """Seconds of prefill placed in a second of the window, by all replicas, whether it was seen whole or not."""
        return self._decayed(now) / self._window

    def load(self, now: float) -> float:
        """The same, with what was seen standing for the whole window; changes nothing."""
        if self._since is None:
            return 0.0
        window, at = self._window, self._at
        work = self._work if now <= at else self._work * exp((at - now) / window)
        elapsed = max(now, at) - self._since
        if elapsed < _LEAST_SEEN * window:
            elapsed = _LEAST_SEEN * window
        return work / (window * -expm1(-elapsed / window))

    def share(self, now: float, workers: int, factor: float = 1.0) -> float:
        """ρ̂, 0 … 0.99, if there is `factor` times the load that was seen; changes nothing."""
        return min(_FULLEST, self.load(now) * factor / max(1, workers))

    def price(self, now: float, workers: int, factor: float = 1.0) -> float:
        """α = 1 / (1 − ρ̂), from 1 to the limit: others' waiting per second of prefill in a queue with one server."""
        share = self.load(now) * factor / (max(1, workers))
        price = 1.0 / (1.0 - (min(_FULLEST, share)))
        return min(self._price_limit, price)

    def _decayed(self, now: float) -> float:
        return self._work if now <= self._at else self._work * exp((self._at - now) / self._window)
