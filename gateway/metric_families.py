"""How a metric is declared and kept: one row says everything, labels are bounded, children are found in one look-up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

OTHER = "other"
"""What a label reads when a client made its value up."""

KNOWN_VALUES_BOUND = 1_000
"""No label learns more values than this in a process's life, whoever supplies them."""

Child = TypeVar("Child", Counter, Gauge, Histogram)


class LabelValues:
    """The tenants, models and workers that may appear as label values; anything else reads `other`.

    Clients can send any model name and any key: without this bound a scrape would grow with every one of them.
    """

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {"tenant": set(), "model": set(), "backend": set()}

    def allow(self, label: str, values: Iterable[str]) -> None:
        """Let `values` appear under `label` ('tenant', 'model' or 'backend'), up to the bound."""
        known = self._known[label]
        for value in values:
            if len(known) < KNOWN_VALUES_BOUND:
                known.add(value)

    def bounded(self, label: str, value: str) -> str:
        """`value` itself, or `other` when the label is bounded and does not know it."""
        known = self._known.get(label)
        return value if known is None or value in known else OTHER


class Family(Generic[Child]):
    """One metric with its labels; `labels(...)` gives the child to count on, cached by its values."""

    def __init__(self, metric: Child, names: tuple[str, ...], values: LabelValues) -> None:
        self._metric: Child = metric
        self._names = names
        self._values = values
        self._children: dict[tuple[str, ...], Child] = {}

    def labels(self, *values: str) -> Child:
        """The child for these label values, in the order of the table; unknown tenants and models become `other`."""
        child = self._children.get(values)
        return child if child is not None else self._new_child(values)

    def remove(self, *values: str) -> None:
        """Forget one child, so that its series ends; nothing happens when there is none."""
        if self._children.pop(values, None) is not None:
            self._metric.remove(*values)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(tuple(self._children))

    def _new_child(self, values: tuple[str, ...]) -> Child:
        bounded = tuple(self._values.bounded(name, value) for name, value in zip(self._names, values, strict=True))
        child = self._children.get(bounded)
        if child is None:
            child = self._children[bounded] = self._metric.labels(*bounded) if bounded else self._metric
        return child


@dataclass(frozen=True, slots=True)
class MetricRow:
    """What the table says of one metric; `name` is without the prefix."""

    name: str
    kind: str
    sentence: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]


class Declared(Generic[Child]):
    """A row of the table as a class attribute; an instance of the class holds the `Family` of the same name."""

    def __init__(self, kind: type[Child], sentence: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> None:
        self._kind: type[Child] = kind
        self._row = MetricRow("", kind.__name__.lower(), sentence, labels, buckets)

    def __set_name__(self, owner: type, name: str) -> None:
        row = self._row
        self._row = MetricRow(name, row.kind, row.sentence, row.labels, row.buckets)

    @overload
    def __get__(self, instance: None, owner: type) -> Declared[Child]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Family[Child]: ...
    def __get__(self, instance: object | None, owner: type) -> Declared[Child] | Family[Child]:
        """The row itself on the class. Instances shadow it with their family (see `build`)."""
        if instance is None:
            return self
        raise AttributeError(f"{self._row.name} is not built")

    @property
    def row(self) -> MetricRow:
        """Name, kind, sentence, labels and buckets."""
        return self._row

    def build(self, registry: CollectorRegistry, prefix: str, values: LabelValues) -> Family[Child]:
        """Register the metric under its full name."""
        row = self._row
        extra: dict[str, Any] = {"buckets": row.buckets} if row.buckets else {}
        metric = self._kind(prefix + row.name, row.sentence, row.labels, registry=registry, **extra)
        return Family(metric, row.labels, values)


def counter(sentence: str, *labels: str) -> Declared[Counter]:
    """Declare a counter; its name must end in `_total`."""
    return Declared(Counter, sentence, labels, ())


def gauge(sentence: str, *labels: str) -> Declared[Gauge]:
    """Declare a gauge."""
    return Declared(Gauge, sentence, labels, ())


def histogram(sentence: str, *labels: str, buckets: tuple[float, ...]) -> Declared[Histogram]:
    """Declare a histogram with its upper bounds, in the unit that its name ends in."""
    return Declared(Histogram, sentence, labels, buckets)


def declared_rows(table: type) -> dict[str, Declared[Any]]:
    """The rows of a class whose attributes are declared metrics, in the order written."""
    return {name: row for name, row in vars(table).items() if isinstance(row, Declared)}


Refresh = Callable[[], None]
"""Brings gauges up to date just before a scrape."""
