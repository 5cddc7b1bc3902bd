"""How a metric is declared and kept: one row says everything, labels are bounded, children are found in one look-up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.metric_values import Counter, Gauge, Histogram

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


@dataclass(frozen=True, slots=True)
class MetricRow:
    """What the table says of one metric; `name` is without the prefix."""

    name: str
    kind: str
    sentence: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]


class Family(Collector, Generic[Child]):
    """One metric with its labels; `labels(...)` gives the child to count on, cached by its values.

    Without labels there is one child from the start, else each comes with its first use.
    """

    def __init__(self, row: MetricRow, prefix: str, kind: type[Child], values: LabelValues) -> None:
        self.row = row
        self._name = (prefix + row.name).removesuffix("_total")
        self._kind: type[Child] = kind
        self._values = values
        self._children: dict[tuple[str, ...], Child] = {}
        if not row.labels:
            self._new_child(())

    def labels(self, *values: str) -> Child:
        """The child for these label values, in the order of the table; unknown tenants and models become `other`."""
        child = self._children.get(values)
        return child if child is not None else self._new_child(values)

    def remove(self, *values: str) -> None:
        """Forget one child, so that its series ends; nothing happens when there is none."""
        self._children.pop(values, None)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(tuple(self._children))

    def describe(self) -> list[Metric]:
        """The metric without samples: what a registry checks names by."""
        return [Metric(self._name, self.row.sentence, self.row.kind)]

    def collect(self) -> list[Metric]:
        """The metric with all its samples, as prometheus_client writes them out."""
        (metric,) = self.describe()
        for values, child in tuple(self._children.items()):
            own = dict(zip(self.row.labels, values, strict=True))
            for suffix, more, number in child.readings():
                metric.samples.append(Sample(self._name + suffix, {**own, **more}, number))
        return [metric]

    def _new_child(self, values: tuple[str, ...]) -> Child:
        names = self.row.labels
        bounded = tuple(self._values.bounded(name, value) for name, value in zip(names, values, strict=True))
        child = self._children.get(bounded)
        if child is None:
            child = self._children[bounded] = self._kind(self.row.buckets)
        return child


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
        family = Family(self._row, prefix, self._kind, values)
        registry.register(family)
        return family


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
