"""Blocks by partition and state."""

from __future__ import annotations

from backends.partitions import PartitionOccupancy
from tests.backends.metrics.page import build_metrics, families, values
from tests.backends.test_log_line import build_stats


def test_each_partition_has_its_blocks_by_state_and_its_bounds():
    """The one without a name too."""
    metrics = build_metrics()
    common = PartitionOccupancy("", free=5, cached=2, pinned=0, referenced=1, floor=0, ceiling=9)
    support = PartitionOccupancy("support", free=1, cached=2, pinned=1, referenced=2, floor=3, ceiling=6)
    metrics.watch(build_stats(occupancy=(common, support)))
    seen = values(metrics.registry)
    states = ("free", "cached", "pinned", "referenced")
    assert [seen[f"homing_worker_blocks support {state}"] for state in states] == [1, 2, 1, 2]
    assert [seen[f"homing_worker_blocks  {state}"] for state in states] == [5, 2, 0, 1]
    assert seen["homing_worker_partition_bound_blocks floor support"] == 3
    assert seen["homing_worker_partition_bound_blocks ceiling support"] == 6


def test_they_are_gauges_of_the_model():
    """In Homing's own name: vLLM has no partitions."""
    metrics = build_metrics()
    metrics.watch(build_stats(occupancy=(PartitionOccupancy("", 1, 0, 0, 0, 0, 1),)))
    kind, labels, _ = families(metrics.text().decode(), prefix="homing_")["homing_worker_blocks"]
    assert (kind, labels) == (
        "gauge",
        {"homing_worker_blocks": {frozenset({"model_name", "partition", "state"})}},
    )
