"""The bars of placement, by replay: homing against an oracle, an ideal and other routers' policies.

    PYTHONPATH=. python bench/placement.py [--full] [--json FILE] [--markdown FILE] [--seeds N] [--no-speed]

Prints each cell beside its bar and the best peer; exits 1 when a bar is missed, or none could be judged. Homing runs
as the product does, with learning on. Cells run over all cores and are kept in --folder by code and parameters: an
interrupted run goes on, and after a change only what it touches is run again. `--markdown` writes the tables between
the marks in a document; `--from FILE` takes the figures of an earlier --json instead of running anything, `--kept` what
an interrupted run left.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.bars import fleet_checks, held_against, speed
from bench.bars.cells import Cell, Workload, full_cells, quick_cells
from bench.bars.check import Check
from bench.bars.processes import all_figures
from bench.bars.results import Results
from bench.bars.run import Figures
from bench.bars.store import Store
from bench.bars.tables import better_peers, tables

FOLDER = Path(".cache/bench-placement")
MARKS = {"tables": tables, "better": better_peers}


def main() -> int:
    """Run, print, judge."""
    options = _options()
    figures = _read(options.earlier) if options.earlier else _run(options)
    results = Results(figures)
    checks: list[Check] = []
    for check in _checks(results, timed=not (options.no_speed or options.earlier or options.kept)):
        checks.append(check)
        print(check.line(), flush=True)
    missed = [check for check in checks if not check.met]
    print(f"\n{len(checks) - len(missed)} of {len(checks)} bars met")
    print("\n".join(check.line() for check in missed))
    if options.json:
        options.json.write_text(json.dumps(_as_json(figures, checks), indent=1))
    if options.markdown:
        _renew(options.markdown, results)
    return 1 if missed or not checks else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all peers, and engine B")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and checks there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="renew the tables of that document")
    parser.add_argument("--from", dest="earlier", type=Path, metavar="FILE", help="judge an earlier --json")
    parser.add_argument("--kept", action="store_true", help="judge the cells that are kept, and run nothing")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where cells are kept")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many of each cell: 2, and 3 with --full")
    parser.add_argument("--processes", type=int, metavar="N", help="how many cores")
    parser.add_argument("--no-speed", action="store_true", help="leave out what is timed")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> dict[Cell, Figures]:
    seeds = range(1, (options.seeds or (3 if options.full else 2)) + 1)
    cells = full_cells(seeds) if options.full else quick_cells(seeds)
    store = Store(options.folder)
    if options.kept:
        found = {cell: store.find(cell) for cell in cells}
        return {cell: figures for cell, figures in found.items() if figures is not None}
    return all_figures(cells, store, options.processes)


def _checks(results: Results, *, timed: bool) -> Iterator[Check]:
    yield from held_against.checks(results)
    yield from fleet_checks.checks(results)
    if timed:
        yield from speed.checks()


def _as_json(figures: Mapping[Cell, Figures], checks: list[Check]) -> dict[str, object]:
    cells = [{**cell._asdict(), "workload": cell.workload._asdict(), "figures": dict(f)} for cell, f in figures.items()]
    return {"cells": cells, "checks": [{**check._asdict(), "met": check.met} for check in checks]}


def _read(path: Path) -> dict[Cell, Figures]:
    found: dict[Cell, Figures] = {}
    for row in json.loads(path.read_text())["cells"]:
        figures = row.pop("figures")
        found[Cell(Workload(**row.pop("workload")), **row)] = figures
    return found


def _renew(path: Path, results: Results) -> None:
    """Put new tables between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    text = path.read_text()
    for name, lines in MARKS.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not begin or not end:
            raise SystemExit(f"{path} has no place for them: <!-- {name} --> … <!-- end of {name} -->")
        text = before + begin + "\n".join(lines(results) or ["Nowhere in these cells."]) + "\n" + end + after
    path.write_text(text)


if __name__ == "__main__":
    sys.exit(main())
