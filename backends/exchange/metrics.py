"""Pulls, gifts, collisions and lost events in /metrics: names of our own, for vLLM has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

LABELS = ("model_name", "engine")
ENGINE = "0"

Count = Callable[[], float]


class ExchangeCollector(Collector):
    """Reads the counts at each scrape; register it in the worker's registry. `outcomes` are pulls by reason."""

    def __init__(self, model_name: str, outcomes: Callable[[], Mapping[str, int]], counts: Mapping[str, Count]) -> None:
        self._labels = (model_name, ENGINE)
        self._outcomes = outcomes
        self._counts = counts

    def describe(self) -> Iterator[Metric]:
        """The names."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """One sample of each count, and of pulls one by outcome."""
        pulls = CounterMetricFamily("homing:cache_pulls", SENTENCES["cache_pulls"], labels=(*LABELS, "outcome"))
        for outcome, count in self._outcomes().items():
            pulls.add_metric((*self._labels, outcome), count)
        yield pulls
        for name, count_now in self._counts.items():
            family = CounterMetricFamily(f"homing:{name}", SENTENCES[name], labels=LABELS)
            family.add_metric(self._labels, count_now())
            yield family


SENTENCES = {
    "cache_pulls": "Pulls of blocks from peers, by what became of them.",
    "cache_pulled_tokens": "Tokens whose K/V came from a peer.",
    "cache_given_blocks": "Blocks sent to peers.",
    "block_digest_collisions": "Lookups that met a block of the same digest and other tokens.",
    "kv_event_batches_dropped": "Batches of KV events that found no room in the queue.",
}
