"""What several processes count, added up. Counters never fall: what a process had counted outlives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.metrics import PREFIX

OWN_GAUGES = frozenset(
    PREFIX + name
    for name in (
        "requests_in_flight",
        "backend_in_flight",
        "client_connections",
        "prewarm_kept_prompts",
        "prewarm_kept_bytes",
        "event_loop_tasks",
    )
)
"""Gauges of which each process has a part. Of all others, such as what workers say, each tells the same: the largest
is taken."""

Page = Mapping[str, Metric]


def read_page(text: str) -> Page:
    """A scrape by the metrics' names."""
    return {metric.name: metric for metric in text_string_to_metric_families(text)}


class Sums(Collector):
    """The last page of each process, and what those had counted that are no more."""

    def __init__(self) -> None:
        self._pages: dict[int, Page] = {}
        self._left: Page = {}

    def heard(self, process: int, page: Page) -> None:
        """The newest page of a process."""
        self._pages[process] = page

    def left(self, process: int) -> None:
        """The process is no more: it has counted what it had when it was last heard."""
        page = self._pages.pop(process, {})
        counted = {name: metric for name, metric in page.items() if metric.type != "gauge"}
        self._left = {metric.name: metric for metric in added_up((self._left, counted))}

    def collect(self) -> Iterator[Metric]:
        """Everything, as one process would tell it."""
        return added_up((self._left, *self._pages.values()))


def added_up(pages: Iterable[Page]) -> Iterator[Metric]:
    """One page of several; the metrics in the order in which they first appear."""
    parts: dict[str, list[Metric]] = {}
    for page in pages:
        for name, metric in page.items():
            parts.setdefault(name, []).append(metric)
    return (_one(metrics) for metrics in parts.values())


def _one(metrics: list[Metric]) -> Metric:
    first = metrics[0]
    largest = first.type == "gauge" and first.name not in OWN_GAUGES
    numbers: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in (sample for metric in metrics for sample in metric.samples):
        place = sample.name, tuple(sample.labels.items())
        before = numbers.get(place)
        if before is None:
            numbers[place] = sample.value
        else:
            numbers[place] = max(before, sample.value) if largest else before + sample.value
    metric = Metric(first.name, first.documentation, first.type)
    metric.samples = [Sample(name, dict(labels), number) for (name, labels), number in numbers.items()]
    return metric
