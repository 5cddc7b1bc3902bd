"""Gauges of what the routers believe and have learned, read when somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.metric_families import Family
from gateway.metric_values import Gauge
from gateway.metrics import Metrics
from router.router import Router
from router.statistics import WorkerStatistics


class RouterGauges:
    """Brings the gauges of directories, rates and prices up to date before a scrape."""

    def __init__(self, metrics: Metrics, routers: Mapping[str, Router], clock: Callable[[], float]) -> None:
        """`routers` is looked at on every scrape, so that later models are in it; `clock` is the routers' own."""
        self._metrics = metrics
        self._routers = routers
        self._clock = clock
        self._evicted_before: dict[tuple[str, str], int] = {}

    def refresh(self) -> None:
        """Read everything anew."""
        for model, router in self._routers.items():
            self._model(model, router)

    def forget(self, worker: str) -> None:
        """A worker has left: its series end."""
        for family in self._of_workers():
            for labels in family:
                if labels[-1] == worker:
                    family.remove(*labels)

    def _model(self, model: str, router: Router) -> None:
        metrics, statistics = self._metrics, router.stats(self._clock())
        workers = statistics.workers
        metrics.directory_blocks.labels(model).set(sum(each.directory_blocks for each in workers))
        metrics.prefill_utilisation_ratio.labels(model).set(statistics.utilisation)
        metrics.placement_price_ratio.labels(model).set(statistics.price)
        metrics.placements_home_ratio.labels(model).set(statistics.share_at_home)
        metrics.prefixes_with_several_homes.labels(model).set(statistics.spread_keys)
        for each in workers:
            self._count_evictions(model, each)
            self._worker(model, each)

    def _of_workers(self) -> tuple[Family[Gauge], ...]:
        metrics = self._metrics
        return (
            metrics.backend_prefill_tokens_per_second,
            metrics.backend_prefill_fixed_seconds,
            metrics.backend_prefill_observations,
            metrics.backend_directory_bound_blocks,
        )

    def _worker(self, model: str, worker: WorkerStatistics) -> None:
        values = (
            worker.prefill_tokens_per_second,
            worker.prefill_fixed_seconds,
            worker.observations,
            worker.directory_bound_blocks,
        )
        for family, value in zip(self._of_workers(), values, strict=True):
            family.labels(model, worker.worker).set(value)

    def _count_evictions(self, model: str, worker: WorkerStatistics) -> None:
        place = (model, worker.worker)
        before, after = self._evicted_before.get(place, 0), worker.directory_evicted_blocks
        # It starts anew when a worker is forgotten.
        self._metrics.directory_evictions_total.labels(model).inc(after - before if after >= before else after)
        self._evicted_before[place] = after
