"""Gauges that are read when somebody looks: what the fleet and the routers say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.fleet import Change, ChangeKind, Fleet
from gateway.metric_families import Family
from gateway.metric_values import Gauge
from gateway.metrics import Metrics
from gateway.router_gauges import RouterGauges
from gateway.worker_state import Worker
from router.router import Router


class Gauges:
    """Brings the gauges of workers and directories up to date before a scrape, and counts ejections as they happen."""

    def __init__(
        self, metrics: Metrics, fleet: Fleet, routers: Mapping[str, Router], clock: Callable[[], float]
    ) -> None:
        """`routers` is looked at on every scrape, so that later models are in it; `clock` is the routers' own."""
        self._metrics = metrics
        self._fleet = fleet
        self._routers = routers
        self._of_routers = RouterGauges(metrics, routers, clock)
        metrics.know(backends=(worker.name for worker in fleet.workers))
        fleet.on_change(self._fleet_changed)
        metrics.before_scrape(self.refresh)

    def refresh(self) -> None:
        """Read everything anew."""
        for worker in self._fleet.workers:
            self._worker(worker)
        for model in self._routers:
            self._metrics.panic.labels(model).set(float(self._fleet.panics(model)))
        self._of_routers.refresh()

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
            self._of_routers.forget(worker.name)

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
