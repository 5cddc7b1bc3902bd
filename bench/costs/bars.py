"""The bars: which ratio of which two routers may be how large, and the table that shows them beside what was found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

EVENTS = "SSE event"
UNSEEN = "32 KB, unseen"
CELLS = ("1 KB", "32 KB", "200 KB", UNSEEN, EVENTS)
"""What CPU time is measured for; the first three with heads that were seen before."""

OURS = "homing"

Costs = Mapping[str, Mapping[str, float]]
"""µs of CPU by router and cell."""


class Bar(NamedTuple):
    """`homing` may cost at most `most` times what `peer` costs in `cell`."""

    peer: str
    cell: str
    most: float


class Found(NamedTuple):
    """A bar and what was found; None where the peer is absent."""

    bar: Bar
    ratio: float | None

    @property
    def verdict(self) -> str:
        """ok, MISSED, or absent."""
        if self.ratio is None:
            return "absent"
        return "ok" if self.ratio <= self.bar.most else "MISSED"


def _each(peer: str, *most: float) -> Iterator[Bar]:
    return (Bar(peer, cell, bound) for cell, bound in zip(CELLS, most))


BARS: Sequence[Bar] = (
    *_each("sglang-router", 1.2, 0.8, 0.6, 3.0, 1.1),
    *_each("smg", 0.8, 0.5, 0.4),
    *_each("vllm-router", 0.4, 0.4, 0.4),
    *_each("litellm", 0.01, 0.01, 0.01),
)


def judge(costs: Costs) -> list[Found]:
    """Every bar of a cell that was measured, in order."""
    ours = costs.get(OURS, {})
    return [Found(bar, _ratio(costs, bar)) for bar in BARS if bar.cell in ours]


def _ratio(costs: Costs, bar: Bar) -> float | None:
    theirs = costs.get(bar.peer, {}).get(bar.cell)
    return costs[OURS][bar.cell] / theirs if theirs else None


def verdicts(found: Sequence[Found]) -> str:
    """A line per bar."""
    lines = []
    for each in found:
        ratio = "     –" if each.ratio is None else f"{each.ratio:6.3f}"
        bar = each.bar
        lines.append(f"{each.verdict:<7} {bar.cell:<14} homing / {bar.peer:<14} {ratio}  bar {bar.most:g}")
    return "\n".join(lines)


def table(routers: Mapping[str, Mapping[str, float]]) -> str:
    """A Markdown table of every router's figures; the columns are those that any router has."""
    columns = list(dict.fromkeys(column for row in routers.values() for column in row))
    lines = ["| router | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in routers.items():
        lines.append(f"| {name} | " + " | ".join(_shown(row.get(column)) for column in columns) + " |")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"
