"""The bars on time to first token and balance in engine A: oracle, ideal, peers, fewest requests (1 … 5, 7)."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bars.cells import OURS, Workload, agent_workloads, chat_workloads, ragpulse_workloads
from bench.bars.check import Check
from bench.bars.results import BUSY, HIT, HOMING, IDEAL, LEAST_REQUESTS, ORACLE, TTFT, TTFT_P90, Results

ORACLE_FACTOR = 1.03
IDEAL_FACTOR = {0.5: 1.22, 0.7: 1.22, 0.9: 1.22, 1.1: 1.30}
IDEAL_HIT_SHARE = 0.92
LARGE_CACHE_BLOCKS = 2_000
PEER_FACTOR = 1.01
LEAST_REQUESTS_TIMES = {1_000: 3.3, 2_000: 4.0, 4_000: 4.0, 8_000: 4.0, 16_000: 4.0}
STICKY = "llmd_sticky"
STICKY_TIMES = {(5_000, 1.5): 1.4, (8_000, 3.0): 1.25}
RAGPULSE_FACTOR = 1.02
BUSY_BOUNDS = {"conversation": 1.1, "synthetic": 1.25}
FULL_LOAD = 0.9


def checks(results: Results) -> Iterator[Check]:
    """All that the results allow."""
    chat = [workload for workload in chat_workloads() if results.has_all(workload, OURS)]
    agents = [workload for workload in agent_workloads() if results.has_all(workload, OURS)]
    for workload in [*chat, *agents]:
        if workload in agents or workload.load <= FULL_LOAD:
            yield _against_oracle(results, workload)
    for workload in chat:
        if workload.cache_blocks >= LARGE_CACHE_BLOCKS:
            yield from _against_ideal(results, workload)
    for workload in chat:
        yield from _against_peers(results, workload)
    for workload in agents:
        yield from _agents_against_peers(results, workload)
    for workload in ragpulse_workloads():
        if results.has_all(workload, (HOMING, LEAST_REQUESTS)):
            yield _ragpulse(results, workload)
    for workload in chat:
        yield _balance(results, workload)


def best_peer(results: Results, workload: Workload, name: str = TTFT) -> str:
    """The best peer's name and figure, as shown."""
    best = results.best_peer(workload, name)
    return f"{best[0]} {best[1]:.3f}" if best else ""


def _against_oracle(results: Results, workload: Workload) -> Check:
    oracle = results.figure(workload, ORACLE, TTFT)
    return Check(
        bar=1,
        cell=workload.label,
        what="TTFT s",
        figure=results.figure(workload, HOMING, TTFT),
        bound=ORACLE_FACTOR * oracle,
        bound_is=f"{ORACLE_FACTOR} × oracle {oracle:.3f}",
        best_peer=best_peer(results, workload),
    )


def _against_ideal(results: Results, workload: Workload) -> Iterator[Check]:
    shared = results.figure(workload, IDEAL, HIT)
    hit = results.figure(workload, HOMING, HIT)
    of_shared = f"{IDEAL_HIT_SHARE} × shared LRU {shared:.3f}"
    yield Check(2, workload.label, "hit rate", hit, IDEAL_HIT_SHARE * shared, of_shared, at_least=True)
    factor = IDEAL_FACTOR[workload.load]
    for name, what in ((TTFT, "TTFT s"), (TTFT_P90, "p90 TTFT s")):
        ideal = results.figure(workload, IDEAL, name)
        figure = results.figure(workload, HOMING, name)
        bound_is = f"{factor} × ideal {ideal:.3f}"
        yield Check(2, workload.label, what, figure, factor * ideal, bound_is, best_peer(results, workload, name))


def _against_peers(results: Results, workload: Workload) -> Iterator[Check]:
    homing = results.figure(workload, HOMING, TTFT)
    best = results.best_peer(workload)
    if best and workload.load <= FULL_LOAD:
        bound_is = f"{PEER_FACTOR} × best peer"
        yield Check(3, workload.label, "TTFT s", homing, PEER_FACTOR * best[1], bound_is, best_peer(results, workload))
    times = LEAST_REQUESTS_TIMES.get(workload.cache_blocks)
    if times and workload.load == FULL_LOAD:
        better = results.figure(workload, LEAST_REQUESTS, TTFT) / homing
        yield Check(3, workload.label, "times better", better, times, "than least requests", at_least=True)


def _agents_against_peers(results: Results, workload: Workload) -> Iterator[Check]:
    homing = results.figure(workload, HOMING, TTFT)
    best = results.best_peer(workload)
    if best:
        yield Check(4, workload.label, "TTFT s", homing, best[1], "best peer", best_peer(results, workload))
    times = STICKY_TIMES.get((workload.cache_blocks, workload.load))
    if times and results.has(workload, STICKY):
        better = results.figure(workload, STICKY, TTFT) / homing
        yield Check(4, workload.label, "times better", better, times, f"than {STICKY}", at_least=True)


def _ragpulse(results: Results, workload: Workload) -> Check:
    least = results.figure(workload, LEAST_REQUESTS, TTFT)
    homing = results.figure(workload, HOMING, TTFT)
    bound_is = f"{RAGPULSE_FACTOR} × least requests {least:.3f}"
    return Check(5, workload.label, "TTFT s", homing, RAGPULSE_FACTOR * least, bound_is, best_peer(results, workload))


def _balance(results: Results, workload: Workload) -> Check:
    bound = BUSY_BOUNDS[workload.trace]
    best = best_peer(results, workload, BUSY)
    return Check(7, workload.label, "busy max/mean", results.figure(workload, HOMING, BUSY), bound, "balance", best)
