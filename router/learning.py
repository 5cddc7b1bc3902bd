"""How the router learns from answers: lines through noisy observations, and means that forget.

Everything is bounded and believes medians: one observation in four may be arbitrarily wrong.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

WINDOW_OBSERVATIONS = 48
RELEARN_EVERY = 8
"""The line is fitted again after this many observations; before the first fit the configured one stands."""

MOST_OUTPUT_TOKENS = 65_536
"""Longer than any answer. One worker that counts wrongly must not make all answers look endless: decoding would then
weigh more than every cache.
"""

_BLEND = 0.5


def middle(values: list[float]) -> float:
    """The median of some values (not none), as `statistics.median` reckons it and in a fraction of its time."""
    values.sort()
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range that a learned line is clamped to, and the least difference in x that says something about slope."""

    slope_low: float
    slope_high: float
    fixed_high: float
    least_spread: float


class RobustLine:
    """`y = fixed + slope · x`, learned online from a window of observations.

    The slope is the median over pairs (a low x with a high x each), the rest is the median of what the slope leaves:
    Theil and Sen's estimator over few pairs. Where the xs are too alike to tell slope from fixed cost, `scales`
    stretches both by the median ratio, else nothing is learned. `fitted` says whether it has left its start.
    """

    __slots__ = ("_bounds", "_scales", "_window", "fitted", "fixed", "observations", "slope")

    def __init__(self, fixed: float, slope: float, bounds: Bounds, *, scales: bool) -> None:
        self._bounds = bounds
        self._scales = scales
        self._window: deque[tuple[float, float]] = deque(maxlen=WINDOW_OBSERVATIONS)
        self.observations = 0
        self.fitted = False
        self.fixed = fixed
        self.slope = slope

    def observe(self, x: float, y: float) -> bool:
        """Take in one observation, negative ones ignored; True if the line was fitted again."""
        if x < 0 or y < 0:
            return False
        self._window.append((x, y))
        self.observations += 1
        if self.observations % RELEARN_EVERY or len(self._window) < RELEARN_EVERY:
            return False
        self._fit()
        return True

    @property
    def remembered(self) -> int:
        """Observations that the next fit would go by."""
        return len(self._window)

    @property
    def latest(self) -> tuple[float, float]:
        """The newest observation; there must be one."""
        return self._window[-1]

    def at(self, x: float) -> float:
        """The line's y at `x`."""
        return self.fixed + self.slope * x

    def start_again(self, fixed: float, slope: float) -> None:
        """Forget what was observed and stand at this line until the next fit."""
        self._window.clear()
        self.fitted, self.fixed, self.slope = False, fixed, slope

    def _fit(self) -> None:
        ordered, least_spread = sorted(self._window), self._bounds.least_spread
        half = len(ordered) // 2
        pairs = zip(ordered[:half], ordered[-half:], strict=True)
        slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 - x1 >= least_spread]
        slope = middle(slopes) if len(slopes) * 2 >= half else 0.0
        if slope > 0:
            self._blend(middle([y - slope * x for x, y in ordered]), slope)
        elif self._scales:
            fixed, slope = self.fixed, self.slope
            ratio = middle([y / max(1e-9, fixed + slope * x) for x, y in ordered])
            self._blend(fixed * ratio, slope * ratio)

    def _blend(self, fixed: float, slope: float) -> None:
        bounds = self._bounds
        slope = min(bounds.slope_high, max(bounds.slope_low, slope))
        fixed = min(bounds.fixed_high, max(0.0, fixed))
        blend = _BLEND if self.fitted else 1.0
        self.slope += blend * (slope - self.slope)
        self.fixed += blend * (fixed - self.fixed)
        self.fitted = True


class RunningMean:
    """A mean that first averages and then forgets: each new value weighs at least 1 %, one outlier at most 8 means."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def observe(self, value: float) -> None:
        """Take in one value ≥ 0."""
        count = self.count = self.count + 1
        mean = self.value
        if count > 16 and value > 8 * mean + 64:  # before that nobody knows what an outlier is
            value = 8 * mean + 64
        self.value = mean + (0.01 if count >= 100 else 1.0 / count) * (value - mean)


class OutputLengths:
    """Expected output tokens, per tenant where one is known, else over all; bounded in tenants."""

    __slots__ = ("_everyone", "_most_tenants", "_tenants")

    def __init__(self, most_tenants: int = 1024) -> None:
        self._everyone = RunningMean()
        self._tenants: OrderedDict[str, RunningMean] = OrderedDict()
        self._most_tenants = most_tenants

    def observe(self, tenant: str, tokens: int) -> None:
        """One answer ended after `tokens` output tokens; what no answer has is a worker's mistake, and cut."""
        tokens = min(MOST_OUTPUT_TOKENS, max(1, tokens))
        self._everyone.observe(tokens)
        tenants = self._tenants
        mean = tenants.get(tenant)
        if mean is None:
            mean = tenants[tenant] = RunningMean()
            if len(tenants) > self._most_tenants:
                tenants.popitem(last=False)
        else:
            tenants.move_to_end(tenant)
        mean.observe(tokens)

    def expect(self, tenant: str = "", max_tokens: int | None = None) -> float:
        """Expected output tokens of the next answer; 0 while nothing has been seen."""
        mean = self._tenants.get(tenant)
        value = mean.value if mean and mean.count >= RELEARN_EVERY else self._everyone.value
        return value if max_tokens is None else min(value, max_tokens)
