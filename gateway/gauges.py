"""Gauges that are read when somebody looks: what the fleet and the routers say of themselves."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Gauge

from gateway.fleet import Change, ChangeKind, Fleet
from gateway.metric_families import Family
from gateway.metrics import Metrics
from gateway.worker_state import Worker
from router.router import Router


class Gauges:
    """Brings the gauges of workers and directories up to date before a scrape, and counts ejections as they happen."""

    def __init__(self, metrics: Metrics, fleet: Fleet, routers: Mapping[str, Router]) -> None:
        """`routers` is looked at on every scrape, so that later models are in it."""
        self._metrics = metrics
        self._fleet = fleet
        self._routers = routers
        self._evicted_before: dict[tuple[str, str], int] = {}
        metrics.know(backends=(worker.name for worker in fleet.workers))
        fleet.on_change(self._fleet_changed)
        metrics.before_scrape(self.refresh)

    def refresh(self) -> None:
        """Read everything anew."""
        for worker in self._fleet.workers:
            self._worker(worker)
        for model, router in self._routers.items():
            self._directory(model, router)

    def _fleet_changed(self, change: Change) -> None:
        metrics, worker = self._metrics, change.worker
        if change.kind is ChangeKind.JOINED:
            metrics.know(backends=[worker.name])
        elif change.kind is ChangeKind.DOWN:
            metrics.backend_ejections_total.labels(change.reason).inc()
        elif change.kind is ChangeKind.MODELS:
            metrics.know(models=(card.id for card in worker.cards or () if worker.configured_for(card.id)))
        elif change.kind is ChangeKind.LEFT:
            for family in self._of_workers():
                family.remove(worker.name)

    def _of_workers(self) -> tuple[Family[Gauge], ...]:
        metrics = self._metrics
        return (
            metrics.backend_up,
            metrics.backend_in_flight,
            metrics.backend_requests_running,
            metrics.backend_requests_waiting,
            metrics.backend_kv_cache_usage_ratio,
            metrics.backend_prefix_cache_hit_ratio,
        )

    def _worker(self, worker: Worker) -> None:
        figures = worker.figures
        values = (
            float(worker.up),
            float(worker.in_flight),
            figures.running if figures else None,
            figures.waiting if figures else None,
            figures.kv_cache_usage_ratio if figures else None,
            worker.hit_ratio,
        )
        for family, value in zip(self._of_workers(), values, strict=True):
            if value is None:  # unknown is no series, never a 0 or a NaN
                family.remove(worker.name)
            else:
                family.labels(worker.name).set(value)

    def _directory(self, model: str, router: Router) -> None:
        workers = router.stats().workers
        self._metrics.directory_blocks.labels(model).set(sum(each.directory_blocks for each in workers))
        evictions = self._metrics.directory_evictions_total.labels(model)
        for each in workers:
            place = (model, each.worker)
            before, after = self._evicted_before.get(place, 0), each.directory_evicted_blocks
            evictions.inc(after - before if after >= before else after)  # it starts anew when a worker is forgotten
            self._evicted_before[place] = after
