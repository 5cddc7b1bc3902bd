"""Writes the measured figures into docs/overhead.md, between two marks; the rest of the page is written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bench.costs.bars import judge, table
from bench.live.processes import ROOT

PAGE = ROOT / "docs" / "overhead.md"
BEGIN, END = "<!-- figures of bench/overhead.py -->\n", "<!-- end of figures -->\n"
DATA = "<!-- data "


def figures_text(found: Mapping[str, Any]) -> str:
    """Both tables, and the data that they are made of."""
    rows = {
        name: {**costs, **found["times_us"][name], "RSS MB": found["resident_megabytes"][name]}
        for name, costs in found["cpu_us"].items()
    }
    bars = ["| cell | beside | ratio | bar | |", "|---|---|---|---|---|"]
    for each in judge(found["cpu_us"]):
        ratio = "–" if each.ratio is None else f"{each.ratio:.3f}"
        bars.append(f"| {each.bar.cell} | {each.bar.peer} | {ratio} | {each.bar.most:g} | {each.verdict} |")
    data = f"{DATA}{json.dumps(found, separators=(',', ':'))} -->"
    return "\n\n".join((data, table(rows), "\n".join(bars))) + "\n"


def write_document(found: Mapping[str, Any]) -> None:
    """Replace what stands between the marks."""
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + figures_text(found) + "\n" + END + rest.partition(END)[2])


def figures_on_page() -> Mapping[str, Any]:
    """The data that the page was last made of."""
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(DATA))
    found: Mapping[str, Any] = json.loads(line.removeprefix(DATA).removesuffix(" -->"))
    return found
