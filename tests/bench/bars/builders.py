"""Figures of cells, and a fleet of results made of them."""

from __future__ import annotations

from collections.abc import Mapping

from bench.bars.cells import Cell, Workload
from bench.bars.results import Results

CHAT = Workload("conversation", 4_000, 0.9)


def build_figures(ttft_seconds: float, *, hit: float = 0.5, total_seconds: float = 10.0, busy: float = 1.0) -> dict:
    """What a replay comes to, in the names of its figures."""
    return {
        "ttft_mean_seconds": ttft_seconds,
        "ttft_p90_seconds": 2 * ttft_seconds,
        "total_mean_seconds": total_seconds,
        "token_hit_rate": hit,
        "busy_max_over_mean": busy,
    }


def build_results(by_policy: Mapping[str, dict], workload: Workload = CHAT, **more: dict) -> Results:
    """One seed of each policy in one workload; `four` and `ninth` are homing's with replicas and with a newcomer."""
    figures = {Cell(workload, policy): found for policy, found in by_policy.items()}
    if "four" in more:
        figures[Cell(workload, "homing", gateways=4)] = more["four"]
    if "ninth" in more:
        figures[Cell(workload, "homing", ninth=True)] = more["ninth"]
    return Results(figures)


def build_chat(homing_seconds: float, **more: float) -> Results:
    """Homing among an oracle at 1.00 s, an ideal at 0.90 s, a peer at 1.20 s, and least requests at 5 s."""
    return build_results(
        {
            "homing": build_figures(homing_seconds, **more),
            "oracle": build_figures(1.0),
            "ideal": build_figures(0.9),
            "least_requests": build_figures(5.0),
            "llmd_sticky": build_figures(1.2),
        }
    )
