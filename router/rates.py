"""How fast workers prefill and decode: each by its own answers, and by its neighbours' where its own say too little.

Workers of one fleet are mostly alike. One that has been learned would draw all requests from those that still stand
at a wrong configuration, and these would never be learned; so an unlearned worker moves with the others, and small
differences, which are noise, are taken for none.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from math import sqrt

from router.learning import Bounds, RobustLine, middle

PREFILL_TOKENS_PER_SECOND = 8000.0
PREFILL_FIXED_SECONDS = 0.02
DECODE_FIXED_SECONDS = 0.012
DECODE_SECONDS_PER_CONTEXT_TOKEN = 24e-9
"""How much a decode step grows per token of context held by the worker's requests."""

PREFILL_BOUNDS = Bounds(slope_low=1e-7, slope_high=0.1, fixed_high=10.0, least_spread=128.0)
DECODE_BOUNDS = Bounds(slope_low=1e-10, slope_high=1e-5, fixed_high=1.0, least_spread=4096.0)

SAME_WITHIN = 1.2
"""Rates that differ by less than this factor are taken to be the same."""

_SAME_WITHIN_SECONDS = 0.01

UNHEARD_OBSERVATIONS = 16
"""A worker without news while the others had so many each is asked again: one that a hiccup made look slow would get
nothing any more, and could never show that it is not. One known to be slow is asked by one request."""

OWN_OBSERVATIONS = 24
"""Before so many a worker counts as one of the fleet: a hiccup of the machine is in several of its first eight."""

_TYPICAL_TOKENS = 4096


class Trial(Enum):
    """Whether a worker that has shown itself slow is being asked if it still is."""

    NONE = "none"
    DUE = "due"
    """It stands at the fleet's figures until one request was sent there."""
    SENT = "sent"
    """It stands at its own again; what comes of that request decides."""
    LOST = "lost"
    """It still was."""


class WorkerRates:
    """One worker's prefill: `fixed_seconds` + tokens · `seconds_per_token` is what the score uses.

    `prefill` is the line through this worker's own observations. A worker known to be slow of which nothing has been
    heard for long gets one request on `trial`, as one of the fleet: not all that come before it has told how long it
    took, which would be many.
    """

    __slots__ = (
        "_configured",
        "_observed",
        "_observed_at",
        "_start_per_token",
        "fixed_seconds",
        "prefill",
        "seconds_per_token",
        "trial",
    )

    def __init__(self, tokens_per_second: float | None = None, fixed_seconds: float | None = None) -> None:
        self.configure(tokens_per_second, fixed_seconds)

    def configure(self, tokens_per_second: float | None, fixed_seconds: float | None) -> None:
        """Start again from a configuration; None means the default."""
        self._configured = (tokens_per_second, fixed_seconds)
        self._start_per_token = 1.0 / max(1.0, tokens_per_second or PREFILL_TOKENS_PER_SECOND)
        self.seconds_per_token = self._start_per_token
        self.fixed_seconds = PREFILL_FIXED_SECONDS if fixed_seconds is None else max(0.0, fixed_seconds)
        self.prefill = RobustLine(self.fixed_seconds, self.seconds_per_token, PREFILL_BOUNDS, scales=True)
        self._observed = self._observed_at = 0
        self.trial = Trial.NONE

    def configured_as(self, tokens_per_second: float | None, fixed_seconds: float | None) -> bool:
        """Whether learning started from exactly this configuration."""
        return self._configured == (tokens_per_second, fixed_seconds)

    @property
    def slowness(self) -> float:
        """How many times slower this worker's own observations are than its configuration."""
        return self.prefill.slope / self._start_per_token

    @property
    def typical_seconds(self) -> float:
        """What a prefill of a few thousand tokens is predicted to take."""
        return self.fixed_seconds + _TYPICAL_TOKENS * self.seconds_per_token

    def hear(self, slowness: float, fixed_seconds: float, fleet_observations: int, workers: int) -> None:
        """Ask again a worker that has told nothing for long, by the count of what all of the fleet told."""
        if self.prefill.observations != self._observed:
            self._observed, self._observed_at = self.prefill.observations, fleet_observations
            if self.trial is not Trial.NONE:
                self._judge(slowness, fixed_seconds)
        elif fleet_observations - self._observed_at >= UNHEARD_OBSERVATIONS * workers:
            if self._is_slow(slowness, fixed_seconds):
                self.trial, self._observed_at = Trial.DUE, fleet_observations
            else:
                self.trial = Trial.NONE
                self._start_again(slowness, fixed_seconds)

    def start_trial(self) -> bool:
        """A request was sent here: whether it is one on trial, after which the worker's own figures hold again."""
        if self.trial is not Trial.DUE:
            return False
        self.trial = Trial.SENT
        return True

    def settle(self, slowness: float, fixed_seconds: float) -> None:
        """Take over the fleet's figures, unless this worker's own are known and clearly different."""
        own, own_fixed, prefill = slowness, fixed_seconds, self.prefill
        if self.trial is not Trial.DUE and self._knows_itself:
            own, own_fixed = self.slowness, prefill.fixed
        alike = own < SAME_WITHIN * slowness if own > slowness else slowness < SAME_WITHIN * own
        self.seconds_per_token = self._start_per_token * (slowness if alike else own)
        near = abs(own_fixed - fixed_seconds) < max(_SAME_WITHIN_SECONDS, (SAME_WITHIN - 1) * fixed_seconds)
        self.fixed_seconds = fixed_seconds if near else own_fixed

    @property
    def _knows_itself(self) -> bool:
        return self.prefill.fitted and self.prefill.remembered >= OWN_OBSERVATIONS

    def _judge(self, slowness: float, fixed_seconds: float) -> None:
        """It has told something since it was known to be slow."""
        if self.trial is not Trial.LOST and self._was_quick(slowness, fixed_seconds):
            self._start_again(slowness, fixed_seconds)
        self.trial = Trial.LOST if self._is_slow(slowness, fixed_seconds) else Trial.NONE

    def _start_again(self, slowness: float, fixed_seconds: float) -> None:
        """Forget this worker's own observations and take it for one of the fleet until it tells more."""
        self.prefill.start_again(fixed_seconds, slowness * self._start_per_token)

    def _is_slow(self, slowness: float, fixed_seconds: float) -> bool:
        """Whether its own figures are known and make it clearly slower than the fleet."""
        own, fleet = (
            self.prefill.at(_TYPICAL_TOKENS),
            fixed_seconds + _TYPICAL_TOKENS * slowness * self._start_per_token,
        )
        return self._knows_itself and own >= SAME_WITHIN * fleet

    def _was_quick(self, slowness: float, fixed_seconds: float) -> bool:
        """Whether the latest observation is more like the fleet's than like its own."""
        tokens, seconds = self.prefill.latest
        fleet = fixed_seconds + tokens * slowness * self._start_per_token
        return seconds < sqrt(fleet * self.prefill.at(tokens))


def settle_rates(fleet: Collection[WorkerRates]) -> float:
    """Let every worker take over what the learned ones have in common, in proportion to its configuration.

    Returns how many times as long as before a prefill is now predicted to take.
    """
    fitted = [rates for rates in fleet if rates.prefill.fitted]
    if not fitted:
        return 1.0
    learned = [rates for rates in fitted if rates.trial is Trial.NONE] or fitted
    before = sum([rates.typical_seconds for rates in fleet])
    slowness = middle([rates.slowness for rates in learned])
    fixed_seconds = middle([rates.prefill.fixed for rates in learned])
    observations = sum([rates.prefill.observations for rates in fleet])
    for rates in fleet:
        rates.hear(slowness, fixed_seconds, observations, len(fleet))
        rates.settle(slowness, fixed_seconds)
    return sum([rates.typical_seconds for rates in fleet]) / before


def decode_line() -> RobustLine:
    """Seconds of a decode step against tokens of context at the worker; one for a fleet, its effect is small."""
    return RobustLine(DECODE_FIXED_SECONDS, DECODE_SECONDS_PER_CONTEXT_TOKEN, DECODE_BOUNDS, scales=False)
