"""tests/faults.yml: one row per property, and docs/TRUST.md, which is written from it.

python -m tests.faults.ledger          writes docs/TRUST.md anew
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "tests" / "faults.yml"
PAGE = ROOT / "docs" / "TRUST.md"

LEDGER_HEAD = """# One row per property that the gateway promises to keep under faults. `make faults` runs their tests
# and writes figure, held and date; a test says when a row has no test or a test no row. `alone` rows measure time.
"""

PAGE_HEAD = """# What is promised under faults, and what was measured

Each row is a property, what is promised of it, the test that shows it, and what the test found when `make faults` last
ran. The tests start real gateways, workers that fail as they are told (`tests/faults/worker.py`), a bad network
(`tests/faults/proxy.py`) and a real Redis, all on one machine with two cores. Latency bars are against the same load
without the fault, in the same minute. A row that misses its bar is run once more; two misses fail the run.

These tests cannot show a real GPU's timing, packet loss, a real Kubernetes control plane, partitions between machines,
or what days of uptime do. Fault-injection workers show the gateway, not a model server.

Four promises are less than one may expect, on purpose (docs/decisions/0024-the-fault-suite.md):

- A14: every cancel is sent at once, which ends all engines that die of one, unless `faults.cancels_per_second` is set.
- D7: where all workers hang behind good pages, /readyz says no after `first_byte_seconds` (60 s by default) and ten.
- E2: a client that half-closes its connection counts as gone and gets no answer.
- E12: who stood in line to the end of `queue_seconds` is told then, not within 50 ms."""

MADE_BY = "<!-- Written by `make docs` from tests/faults.yml; a test says when it is out of date. -->"


@dataclass
class LedgerRow:
    """One property. `figure`, `held` and `date` are what the last run found; `alone` rows measure time."""

    id: str
    property: str
    promise: str
    test: str
    alone: bool = False
    figure: str = "not run yet"
    held: bool = False
    date: str = ""


def read_ledger(path: Path = LEDGER) -> list[LedgerRow]:
    """Every row, in the order written."""
    return [LedgerRow(**row) for row in yaml.safe_load(path.read_text())]


def write_ledger(rows: Sequence[LedgerRow], path: Path = LEDGER) -> None:
    """Write all rows, one blank line between two."""
    blocks = [yaml.safe_dump([asdict(row)], sort_keys=False, allow_unicode=True, width=10_000).strip() for row in rows]
    path.write_text(LEDGER_HEAD + "\n" + "\n\n".join(blocks) + "\n")


def trust_page(rows: Sequence[LedgerRow]) -> str:
    """docs/TRUST.md."""
    lines = ["| | property | promise | last figure | held | test |", "|---|---|---|---|---|---|"]
    for row in rows:
        held = f"yes, {row.date}" if row.held else f"**no**, {row.date}" if row.date else "not run"
        path, _, name = row.test.partition("::")
        cells = (row.id, row.property, row.promise, row.figure, held, f"`{path}` {name}")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    held_rows = sum(row.held for row in rows)
    counted = f"{held_rows} of {len(rows)} rows held when they were last run."
    return "\n\n".join((PAGE_HEAD, MADE_BY, counted, "\n".join(lines))) + "\n"


def marked_tests(folder: Path = ROOT / "tests") -> Iterator[tuple[str, str]]:
    """Row id and node id of every test that says which row it is."""
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text()
        if "mark.row(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("mark.row"):
                        yield ast.literal_eval(mark.args[0]), f"{path.relative_to(folder.parent)}::{node.name}"


def main() -> None:
    PAGE.write_text(trust_page(read_ledger()))


if __name__ == "__main__":
    main()
