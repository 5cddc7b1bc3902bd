"""What the router learns from answers: how fast each worker prefills and decodes, and how long answers are.

Everything starts from configuration, is bounded, and believes medians: one answer in four may be arbitrarily wrong.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from statistics import median

PREFILL_TOKENS_PER_SECOND = 8000.0
PREFILL_FIXED_SECONDS = 0.02
DECODE_FIXED_SECONDS = 0.012
DECODE_SECONDS_PER_CONTEXT_TOKEN = 24e-9
"""How much a decode step grows per token of context held by the worker's requests."""

WINDOW_OBSERVATIONS = 48
RELEARN_EVERY = 8
"""The line is fitted again after this many observations; before the first fit the configured one stands."""

_BLEND = 0.5


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range that a learned line is clamped to, and the least difference in x that says something about slope."""

    slope_low: float
    slope_high: float
    fixed_high: float
    least_spread: float


PREFILL_BOUNDS = Bounds(slope_low=1e-7, slope_high=0.1, fixed_high=10.0, least_spread=128.0)
DECODE_BOUNDS = Bounds(slope_low=1e-10, slope_high=1e-5, fixed_high=1.0, least_spread=4096.0)


class RobustLine:
    """`y = fixed + slope · x`, learned online from a window of observations.

    The slope is the median over pairs (a low x with a high x each), the rest is the median of what the slope leaves:
    Theil and Sen's estimator over few pairs. Where the xs are too alike to tell slope from fixed cost, `scales`
    stretches both by the median ratio, else nothing is learned.
    """

    __slots__ = ("_bounds", "_scales", "_seen", "_window", "fixed", "slope")

    def __init__(self, fixed: float, slope: float, bounds: Bounds, *, scales: bool) -> None:
        self._bounds = bounds
        self._scales = scales
        self._window: deque[tuple[float, float]] = deque(maxlen=WINDOW_OBSERVATIONS)
        self._seen = 0
        self.fixed = fixed
        self.slope = slope

    @property
    def observations(self) -> int:
        """How many observations were taken in since the start."""
        return self._seen

    def observe(self, x: float, y: float) -> None:
        """Take in one observation; negative ones are ignored."""
        if x < 0 or y < 0:
            return
        self._window.append((x, y))
        self._seen += 1
        if self._seen % RELEARN_EVERY == 0:
            self._fit()

    def _fit(self) -> None:
        ordered = sorted(self._window)
        half = len(ordered) // 2
        pairs = zip(ordered[:half], ordered[-half:], strict=True)
        slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 - x1 >= self._bounds.least_spread]
        slope = median(slopes) if len(slopes) * 2 >= half else 0.0
        if slope > 0:
            self._blend(median(y - slope * x for x, y in ordered), slope)
        elif self._scales:
            ratio = median(y / max(1e-9, self.fixed + self.slope * x) for x, y in ordered)
            self._blend(self.fixed * ratio, self.slope * ratio)

    def _blend(self, fixed: float, slope: float) -> None:
        bounds = self._bounds
        slope = min(bounds.slope_high, max(bounds.slope_low, slope))
        fixed = min(bounds.fixed_high, max(0.0, fixed))
        self.slope += _BLEND * (slope - self.slope)
        self.fixed += _BLEND * (fixed - self.fixed)


class WorkerRates:
    """One worker's prefill and decode speeds, in the units the score needs.

    `prefill_fixed` (seconds) + tokens · `prefill_per_token` (seconds) is a prefill; `decode_per_context` is what one
    more token of context adds to a decode step, in seconds.
    """

    __slots__ = ("_configured", "decode", "prefill")

    def __init__(self, tokens_per_second: float | None = None, fixed_seconds: float | None = None) -> None:
        self.configure(tokens_per_second, fixed_seconds)

    def configure(self, tokens_per_second: float | None, fixed_seconds: float | None) -> None:
        """Start again from a configuration; None means the default."""
        self._configured = (tokens_per_second, fixed_seconds)
        rate = max(1.0, tokens_per_second or PREFILL_TOKENS_PER_SECOND)
        fixed = PREFILL_FIXED_SECONDS if fixed_seconds is None else max(0.0, fixed_seconds)
        self.prefill = RobustLine(fixed, 1.0 / rate, PREFILL_BOUNDS, scales=True)
        self.decode = RobustLine(DECODE_FIXED_SECONDS, DECODE_SECONDS_PER_CONTEXT_TOKEN, DECODE_BOUNDS, scales=False)

    def configured_as(self, tokens_per_second: float | None, fixed_seconds: float | None) -> bool:
        """Whether learning started from exactly this configuration."""
        return self._configured == (tokens_per_second, fixed_seconds)

    @property
    def prefill_tokens_per_second(self) -> float:
        """The learned prefill rate."""
        return 1.0 / self.prefill.slope

    @property
    def prefill_fixed_seconds(self) -> float:
        """The learned cost of a prefill of nothing."""
        return self.prefill.fixed


class RunningMean:
    """A mean that first averages and then forgets: each new value weighs at least 1 %, one outlier at most 8 means."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def observe(self, value: float) -> None:
        """Take in one value ≥ 0."""
        self.count += 1
        if self.count > 16:  # before that nobody knows what an outlier is
            value = min(value, 8 * self.value + 64)
        self.value += max(0.01, 1.0 / self.count) * (value - self.value)


class OutputLengths:
    """Expected output tokens, per tenant where one is known, else over all; bounded in tenants."""

    __slots__ = ("_everyone", "_most_tenants", "_tenants")

    def __init__(self, most_tenants: int = 1024) -> None:
        self._everyone = RunningMean()
        self._tenants: OrderedDict[str, RunningMean] = OrderedDict()
        self._most_tenants = most_tenants

    def observe(self, tenant: str, tokens: int) -> None:
        """One answer ended after `tokens` output tokens."""
        self._everyone.observe(max(1, tokens))
        mean = self._tenants.setdefault(tenant, RunningMean())
        self._tenants.move_to_end(tenant)
        mean.observe(max(1, tokens))
        while len(self._tenants) > self._most_tenants:
            self._tenants.popitem(last=False)

    def expect(self, tenant: str = "", max_tokens: int | None = None) -> float:
        """Expected output tokens of the next answer; 0 while nothing has been seen."""
        mean = self._tenants.get(tenant)
        value = mean.value if mean and mean.count >= RELEARN_EVERY else self._everyone.value
        return value if max_tokens is None else min(value, max_tokens)
