"""The figures as tables: every policy in every cell, for a terminal and for docs/placement.md."""

from __future__ import annotations

from collections.abc import Sequence

from bench.bars.cells import Workload
from bench.bars.hot_head import REQUESTS_PER_SECOND
from bench.bars.results import HIT, HOMING, IDEAL, ORACLE, TOTAL, TTFT, Results

FIRST = (HOMING, ORACLE, IDEAL)


def tables(results: Results) -> list[str]:
    """Lines of markdown: one table of time to first token for each trace and engine, then ends of answers."""
    lines: list[str] = []
    for title, workloads in _groups(results.workloads()):
        lines += [f"### {title}", "", *_table(results, workloads, TTFT), ""]
        if workloads[0].engine == "B":
            lines += [f"### {title}: to the end of the answer", "", *_table(results, workloads, TOTAL), ""]
    return lines[:-1]


def better_peers(results: Results) -> list[str]:
    """Lines of markdown: where a peer's mean is under homing's, by what, with which figures."""
    lines = []
    for workload in results.workloads():
        for name, what in ((TTFT, "time to first token"), (TOTAL, "time to the end")):
            if name == TOTAL and workload.engine == "A":
                continue
            ours = results.figure(workload, HOMING, name)
            for peer in results.peers(workload):
                theirs = results.figure(workload, peer, name)
                if theirs < ours:
                    lines.append(f"- {workload.label}: `{peer}`, {what} {theirs:.3f} s against {ours:.3f} s.")
    return lines


def _groups(workloads: Sequence[Workload]) -> list[tuple[str, list[Workload]]]:
    groups: dict[tuple[str, str], list[Workload]] = {}
    for workload in workloads:
        groups.setdefault((workload.trace, workload.engine), []).append(workload)
    return [(f"{trace.replace('_', ' ')}, engine {engine}", members) for (trace, engine), members in groups.items()]


def _table(results: Results, workloads: Sequence[Workload], name: str) -> list[str]:
    heads = [_head(workload) for workload in workloads]
    lines = ["| policy | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for policy in _by_mean(results, workloads, name):
        shown = f"**{policy}**" if policy == HOMING else policy
        cells = [_shown(results, workload, policy, name) for workload in workloads]
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return lines


def _head(workload: Workload) -> str:
    if workload.trace == "hot_head":
        return f"{REQUESTS_PER_SECOND:g} requests a second"
    return workload.label.split(" ", 1)[1].removesuffix(", engine B")


def _by_mean(results: Results, workloads: Sequence[Workload], name: str) -> list[str]:
    """Ours first, then the peers that were run everywhere here, best first by their distance to homing."""
    everywhere = [policy for policy in results.policies(workloads[0]) if all(results.has(w, policy) for w in workloads)]

    def distance(policy: str) -> float:
        return sum(results.figure(w, policy, name) / results.figure(w, HOMING, name) for w in workloads)

    return [policy for policy in FIRST if policy in everywhere] + sorted(
        (policy for policy in everywhere if policy not in FIRST), key=distance
    )


def _shown(results: Results, workload: Workload, policy: str, name: str) -> str:
    seconds, hit = results.figure(workload, policy, name), 100 * results.figure(workload, policy, HIT)
    return f"{seconds:.2f} · {hit:.0f} %" if seconds < 100 else f"{seconds:.0f} · {hit:.0f} %"
