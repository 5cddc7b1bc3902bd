"""Running one cell: the replay it stands for, reduced to figures."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bench.bars.cells import NEWS_DELAY_SECONDS, Cell, Workload, trace_of
from bench.bars.newcomer import watch_newcomer
from bench.peers.registry import PEERS, build_peer
from router.replay.choosers import ALL_SEEING, build_chooser, router_chooser
from router.replay.core import Chooser, Trace
from router.replay.figures import figures
from router.replay.saturation import sustained_requests_per_second
from router.replay.simulate import replay

Figures = Mapping[str, float]


def sustained(workload: Workload) -> Figures:
    """What the fleet of a workload sustains."""
    return {"requests_per_second": sustained_requests_per_second(trace_of(workload.trace), workload.settings())}


def run_cell(cell: Cell, sustained_per_second: float | None) -> Figures:
    """The figures of one cell; `sustained_per_second` is asked for where the load is relative to it."""
    trace, settings = trace_of(cell.workload.trace), cell.workload.settings()
    time_scale = _time_scale(trace, cell.workload, sustained_per_second)
    started = time.process_time()
    if cell.ninth:
        return watch_newcomer(trace, lambda: _chooser(cell, trace), settings, time_scale)._asdict()
    replayed = replay(
        trace, _chooser(cell, trace), settings, time_scale=time_scale, shared_cache=cell.policy == "ideal"
    )
    spent = time.process_time() - started
    return {**figures(trace, replayed)._asdict(), "cpu_seconds": spent}


def _chooser(cell: Cell, trace: Trace) -> Chooser:
    settings = cell.workload.settings()
    if cell.policy in PEERS:
        return build_peer(cell.policy, settings, trace, cell.seed)
    if cell.policy in ALL_SEEING:
        return build_chooser(cell.policy, settings, seed=cell.seed)
    return router_chooser(
        cell.policy,
        settings,
        gateways=cell.gateways,
        news_delay_seconds=NEWS_DELAY_SECONDS,
        seed=cell.seed,
        worker_prefix=f"seed-{cell.seed}-worker",  # other names are another ring: the only lot in a router of ours
    )


def _time_scale(trace: Trace, workload: Workload, sustained_per_second: float | None) -> float:
    if workload.trace == "hot_head":
        return 1.0
    if trace.closed_loop:
        return 1.0 / workload.load
    assert sustained_per_second is not None, f"{workload.label} needs to know what is sustained"
    span_seconds = max(request.at_seconds for request in trace.requests)
    return len(trace.requests) / span_seconds / (workload.load * sustained_per_second)
