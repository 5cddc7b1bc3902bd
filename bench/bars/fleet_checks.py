"""The bars on fleets and on engine B: replicas, a newcomer, answers' ends, long answers behind one head (6, 8)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bars.cells import NINTH_CELL, REPLICA_CELLS, REPLICAS, Workload, engine_b_workloads
from bench.bars.check import Check
from bench.bars.held_against import ORACLE_FACTOR, best_peer
from bench.bars.results import HOMING, LEAST_REQUESTS, ORACLE, TOTAL, TTFT, Results

REPLICA_FACTOR = 1.08
MOVED_SHARE = 1 / 9 + 0.05
RECOVERY_SECONDS = 120.0
ENDS_SOONER_FACTOR = 0.95
ENDS_SOONER_THAN = (LEAST_REQUESTS, "llmd_sticky", "dynamo_events")
NOT_LATER_FACTOR = 1.03
NEAR_FACTOR = 1.5
HOT_HEAD_FACTOR = 1.01


def checks(results: Results) -> Iterator[Check]:
    """All that the results allow."""
    for place in REPLICA_CELLS:
        workload = Workload(*place)
        if results.has(workload) and results.has(workload, gateways=REPLICAS):
            yield _replicas(results, workload)
    if results.has(Workload(*NINTH_CELL), ninth=True):
        yield from _newcomer(results, Workload(*NINTH_CELL))
    for workload in engine_b_workloads():
        hot, needed = workload.trace == "hot_head", (HOMING, LEAST_REQUESTS)
        if results.has_all(workload, needed if hot else (*needed, ORACLE)):
            yield from _hot_head(results, workload) if hot else _chat(results, workload)


def _replicas(results: Results, workload: Workload) -> Check:
    alone = results.figure(workload, HOMING, TTFT)
    together = results.figure(workload, HOMING, TTFT, gateways=REPLICAS)
    label = f"{workload.label}, {REPLICAS} replicas"
    return Check(6, label, "TTFT s", together, REPLICA_FACTOR * alone, f"{REPLICA_FACTOR} × one {alone:.3f}")


def _newcomer(results: Results, workload: Workload) -> Iterator[Check]:
    found = {
        name: results.figure(workload, HOMING, name, ninth=True)
        for name in ("to_newcomer_share", "moved_share", "moved_share_alone", "recovery_seconds")
    }
    label = f"{workload.label}, a ninth"
    anyway = found["moved_share_alone"]
    yield Check(6, label, "moved to it", found["to_newcomer_share"], MOVED_SHARE, "1/9 + 0.05 of warm prefixes")
    yield Check(6, label, "moved", found["moved_share"], anyway + MOVED_SHARE, f"the same + {anyway:.3f} without it")
    yield Check(6, label, "recovery s", found["recovery_seconds"], RECOVERY_SECONDS, "hit rate within 2 points")


def _chat(results: Results, workload: Workload) -> Iterator[Check]:
    oracle, ttft = results.figure(workload, ORACLE, TTFT), results.figure(workload, HOMING, TTFT)
    bound_is = f"{ORACLE_FACTOR} × oracle {oracle:.3f}"
    yield Check(8, workload.label, "TTFT s", ttft, ORACLE_FACTOR * oracle, bound_is, best_peer(results, workload))
    total = results.figure(workload, HOMING, TOTAL)
    for peer in results.peers(workload):
        theirs = results.figure(workload, peer, TOTAL)
        if peer in ENDS_SOONER_THAN:
            bound_is = f"{ENDS_SOONER_FACTOR} × {peer} {theirs:.2f}"
            yield Check(8, workload.label, "end to end s", total, ENDS_SOONER_FACTOR * theirs, bound_is)
        if results.figure(workload, peer, TTFT) <= NEAR_FACTOR * ttft:
            bound_is = f"{NOT_LATER_FACTOR} × {peer} {theirs:.2f}"
            yield Check(8, workload.label, "end to end s", total, NOT_LATER_FACTOR * theirs, bound_is)


def _hot_head(results: Results, workload: Workload) -> Iterator[Check]:
    least, total = results.figure(workload, LEAST_REQUESTS, TOTAL), results.figure(workload, HOMING, TOTAL)
    bound_is = f"{HOT_HEAD_FACTOR} × least requests {least:.3f}"
    best = best_peer(results, workload, TOTAL)
    yield Check(8, workload.label, "end to end s", total, HOT_HEAD_FACTOR * least, bound_is, best)
