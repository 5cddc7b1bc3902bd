"""What one tenant's requests for one model are counted on: looked up once, then counted on by every request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from gateway.metric_values import Counter, Histogram
from gateway.metrics import Metrics
from gateway.wire import Usage

Key = TypeVar("Key")
Child = TypeVar("Child")


class Children(dict[Key, Child], Generic[Key, Child]):
    """Children of a metric by what is left of their labels, each made when it is first counted on."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Key], Child]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Child:
        child = self[key] = self._make(key)
        return child


class Book:
    """The metrics of one tenant and one model, as `gateway.metrics` names them."""

    __slots__ = (
        "affinity",
        "between_tokens",
        "cached_tokens",
        "completion_tokens",
        "duration",
        "first_token",
        "in_flight",
        "placements",
        "predicted_cached_tokens",
        "prediction_error",
        "prompt_tokens",
        "requests",
    )

    def __init__(self, metrics: Metrics, tenant: str, model: str) -> None:
        self.requests: Children[int, Counter] = Children(
            lambda status: metrics.requests_total.labels(tenant, model, str(status))
        )
        self.in_flight = metrics.requests_in_flight.labels(model)
        self.duration = metrics.request_duration_seconds.labels(tenant, model)
        self.placements: Children[str, Counter] = Children(
            lambda reason: metrics.placements_total.labels(model, reason)
        )
        self.first_token: Children[str, Histogram] = Children(
            lambda reason: metrics.time_to_first_token_seconds.labels(tenant, model, reason)
        )
        self.between_tokens = metrics.inter_token_latency_seconds.labels(model)
        self.affinity: Children[bool, Counter] = Children(
            lambda at_home: metrics.affinity_placements_total.labels(tenant, model, "home" if at_home else "away")
        )
        self.prediction_error: Children[bool, Histogram] = Children(
            lambda known: metrics.prediction_error_blocks.labels(model, "known" if known else "believed")
        )
        self.prompt_tokens = metrics.prompt_tokens_total.labels(tenant, model)
        self.cached_tokens = metrics.cached_tokens_total.labels(tenant, model)
        self.predicted_cached_tokens = metrics.predicted_cached_tokens_total.labels(tenant, model)
        self.completion_tokens = metrics.completion_tokens_total.labels(tenant, model)

    def ended(self, status: int, seconds: float) -> None:
        """A request of this book's has ended."""
        self.requests[status].value += 1.0
        self.duration.observe(seconds)

    def used(self, usage: Usage) -> None:
        """What a worker counted of one; its counts are none of them below zero."""
        self.prompt_tokens.value += usage.prompt_tokens
        self.completion_tokens.value += usage.completion_tokens
        self.cached_tokens.value += usage.cached_tokens or 0


class Books:
    """Every book by tenant and model.

    One with a name that is not known to the metrics, perhaps not yet, counts as `other` and is not kept: clients make
    names up, and what is `other` today may have a series of its own tomorrow.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._books: dict[tuple[str, str], Book] = {}
        self.stages: Children[str, Histogram] = Children(lambda stage: metrics.overhead_seconds.labels(stage))

    def overhead(self, spans: Mapping[str, float]) -> None:
        """The seconds that each stage of a request took."""
        stages = self.stages
        for stage, seconds in spans.items():
            histogram = stages[stage]
            histogram.total += seconds
            histogram.counts[bisect_left(histogram.bounds, seconds)] += 1

    def of(self, tenant: str, model: str) -> Book:
        """The book of a tenant's requests for a model."""
        book = self._books.get((tenant, model))
        if book is None:
            book = Book(self._metrics, tenant, model)
            if self._metrics.knows("tenant", tenant) and self._metrics.knows("model", model):
                self._books[tenant, model] = book
        return book
