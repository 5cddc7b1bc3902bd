"""What a run has found: the figures of cells, means over seeds, and who of the peers is best where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean

from bench.bars.cells import OURS, Cell, Workload
from bench.bars.run import Figures

TTFT = "ttft_mean_seconds"
TTFT_P90 = "ttft_p90_seconds"
TOTAL = "total_mean_seconds"
HIT = "token_hit_rate"
BUSY = "busy_max_over_mean"
HOMING, ORACLE, IDEAL, LEAST_REQUESTS = OURS


class Results:
    """Figures by cell; a figure of a policy is its mean over the seeds that were run."""

    def __init__(self, figures: Mapping[Cell, Figures]) -> None:
        self._by_policy: dict[tuple[Workload, str, int, bool], list[Figures]] = {}
        for cell, found in figures.items():
            place = (cell.workload, cell.policy, cell.gateways, cell.ninth)
            self._by_policy.setdefault(place, []).append(found)

    def has(self, workload: Workload, policy: str = HOMING, *, gateways: int = 1, ninth: bool = False) -> bool:
        """Whether that was run."""
        return (workload, policy, gateways, ninth) in self._by_policy

    def has_all(self, workload: Workload, policies: Iterable[str]) -> bool:
        """Whether one gateway of each was run there."""
        return all(self.has(workload, policy) for policy in policies)

    def figure(self, workload: Workload, policy: str, name: str, *, gateways: int = 1, ninth: bool = False) -> float:
        """A figure by name."""
        return fmean(found[name] for found in self._by_policy[workload, policy, gateways, ninth])

    def workloads(self) -> list[Workload]:
        """Those on which one gateway of ours was run, in the order of the run."""
        found = [
            workload
            for workload, policy, gateways, ninth in self._by_policy
            if policy == HOMING and gateways == 1 and not ninth
        ]
        return list(dict.fromkeys(found))

    def policies(self, workload: Workload) -> list[str]:
        """Those that were run there by one gateway, in the order of the run."""
        return [
            policy
            for other, policy, gateways, ninth in self._by_policy
            if other == workload and gateways == 1 and not ninth
        ]

    def peers(self, workload: Workload) -> list[str]:
        """The policies there that are neither ours nor see what nobody sees."""
        return [policy for policy in self.policies(workload) if policy not in (HOMING, ORACLE, IDEAL)]

    def best_peer(self, workload: Workload, name: str = TTFT) -> tuple[str, float] | None:
        """The peer with the least of a figure, and that."""
        found = [(self.figure(workload, peer, name), peer) for peer in self.peers(workload)]
        return (min(found)[1], min(found)[0]) if found else None
