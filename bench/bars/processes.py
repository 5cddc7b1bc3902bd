"""Running the cells that are missing, over the cores, with a line of progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from functools import partial
from typing import TypeVar

from bench.bars.cells import Cell, Workload
from bench.bars.run import Figures, run_cell, sustained
from bench.bars.store import Store

Key = TypeVar("Key", Cell, Workload)
Job = Callable[[], Figures]


def all_figures(cells: Iterable[Cell], store: Store, processes: int | None = None) -> dict[Cell, Figures]:
    """The figures of all cells, kept ones and new ones."""
    wanted = list(dict.fromkeys(cells))
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        fleets = [_fleet_of(cell.workload) for cell in wanted if cell.workload.relative]
        capacity = _gather(pool, fleets, store, lambda fleet: partial(sustained, fleet))

        def job(cell: Cell) -> Job:
            fleet = capacity.get(_fleet_of(cell.workload))
            return partial(run_cell, cell, fleet["requests_per_second"] if fleet else None)

        found = _gather(pool, wanted, store, job)
    return {cell: found[cell] for cell in wanted}


def _gather(pool: Executor, wanted: Sequence[Key], store: Store, job: Callable[[Key], Job]) -> dict[Key, Figures]:
    found = {about: store.find(about) for about in dict.fromkeys(wanted)}
    results = {about: figures for about, figures in found.items() if figures is not None}
    running = {pool.submit(job(about)): about for about in found if about not in results}
    started = time.monotonic()
    for done, future in enumerate(as_completed(running), 1):
        about = running[future]
        results[about] = future.result()
        store.keep(about, results[about])
        elapsed = time.monotonic() - started
        print(f"\r{done}/{len(running)} {elapsed:4.0f} s  {about.label:<78.78}", end="", file=sys.stderr, flush=True)
    if running:
        print(file=sys.stderr)
    return results


def _fleet_of(workload: Workload) -> Workload:
    """What a workload's capacity depends on: its load does not matter."""
    return workload._replace(load=1.0)
