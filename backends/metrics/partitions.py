"""Blocks by partition and state: what each line of business holds of the cache. Homing's own names."""

from __future__ import annotations

from prometheus_client import Gauge

from backends.accounts import EngineStats
from backends.metrics.families import Families

STATES = ("free", "cached", "pinned", "referenced")
BOUNDS = ("floor", "ceiling")


class PartitionMetrics:
    """Follows the pool's occupancy; the partition of requests that name none has an empty label."""

    def __init__(self, families: Families) -> None:
        self._model_name = families.model_name
        self._blocks = Gauge(
            "homing_worker_blocks",
            "Blocks of the KV cache by partition. free + referenced is all of them; cached blocks are findable, pinned "
            "ones not to be evicted, and both may be free or referenced.",
            ("model_name", "partition", "state"),
            registry=families.registry,
        )
        self._bounds = Gauge(
            "homing_worker_partition_bound_blocks",
            "What a partition can always get back to (floor) and never exceeds (ceiling).",
            ("model_name", "partition", "bound"),
            registry=families.registry,
        )

    def watch(self, stats: EngineStats) -> None:
        """Take over the counts."""
        for one in stats.occupancy:
            for state in STATES:
                self._blocks.labels(self._model_name, one.name, state).set(getattr(one, state))
            for bound in BOUNDS:
                self._bounds.labels(self._model_name, one.name, bound).set(getattr(one, bound))
