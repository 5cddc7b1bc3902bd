"""What is counted on: plain numbers without a lock, read when somebody scrapes, in the shape of prometheus_client's.

One thread counts on one value. A request counts two dozen times, so each must cost next to nothing: prometheus_client
takes a lock, and looks up a label tuple, for every one of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import inf
from typing import ClassVar, NamedTuple

from prometheus_client.utils import floatToGoString


class Reading(NamedTuple):
    """One sample of a value: what its name gets, labels of its own, and the number."""

    suffix: str
    labels: dict[str, str]
    number: float


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    kind: ClassVar = "counter"

    def __init__(self, buckets: tuple[float, ...] = ()) -> None:
        del buckets
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`, which is not below zero (ValueError)."""
        if amount < 0:
            raise ValueError("a counter only grows")
        self.value += amount

    def readings(self) -> Iterator[Reading]:
        """The total."""
        yield Reading("_total", {}, self.value)


class Gauge:
    """A number that goes up and down."""

    __slots__ = ("value",)

    kind: ClassVar = "gauge"

    def __init__(self, buckets: tuple[float, ...] = ()) -> None:
        del buckets
        self.value = 0.0

    def set(self, value: float) -> None:
        """Be `value` from now on."""
        self.value = float(value)

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`."""
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        """Take `amount` off."""
        self.value -= amount

    def readings(self) -> Iterator[Reading]:
        """The value."""
        yield Reading("", {}, self.value)


class Histogram:
    """How often what was observed fell into which bucket; `bounds` are the buckets' upper ends, the last infinite."""

    __slots__ = ("bounds", "counts", "total")

    kind: ClassVar = "histogram"

    def __init__(self, buckets: tuple[float, ...] = ()) -> None:
        """`buckets` ascend; infinity is added."""
        self.bounds = buckets if buckets and buckets[-1] == inf else (*buckets, inf)
        if list(self.bounds) != sorted(set(self.bounds)):
            raise ValueError("the buckets of a histogram ascend")
        self.counts = [0] * len(self.bounds)
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count `amount` into its bucket."""
        self.total += amount
        self.counts[bisect_left(self.bounds, amount)] += 1

    def readings(self) -> Iterator[Reading]:
        """Each bucket with all below it, their number, and the sum where nothing below zero can be in it."""
        so_far = 0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            so_far += count
            end = floatToGoString(bound)  # type: ignore[no-untyped-call]
            yield Reading("_bucket", {"le": end}, float(so_far))
        yield Reading("_count", {}, float(so_far))
        if self.bounds[0] >= 0:
            yield Reading("_sum", {}, self.total)
