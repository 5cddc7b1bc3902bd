"""`make faults`: runs every row of tests/faults.yml, prints a line for each, and writes down what was found.

    python -m tests.faults.run [--only A1,C2] [--directory DIR] [--keep-figures]

Rows that measure time run alone, first; the others two at a time; the search through all that the suite left behind
(rows Z…) comes last. A miss is run once more. Exits with 1 when a row misses twice.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.ledger import PAGE, ROOT, LedgerRow, read_ledger, trust_page, write_ledger
from tests.faults.row import FULL_VARIABLE, RESULTS_VARIABLE

AT_ONCE = 2
ROW_SECONDS = 620.0
LAST = "Z"
"""Rows whose id begins so look at what the others left behind."""


class Runner:
    """Runs rows as pytest would, each in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._gate = asyncio.Semaphore(AT_ONCE)
        self.wrong: list[str] = []

    async def all(self, rows: Sequence[LedgerRow]) -> None:
        """Alone what measures time, two at a time what does not, last what needs the others' traces."""
        last = [row for row in rows if row.id.startswith(LAST)]
        for row in (row for row in rows if row.alone and row not in last):
            await self.one(row)
        await asyncio.gather(*(self.one(row) for row in rows if not row.alone and row not in last))
        for row in last:
            await self.one(row)

    async def one(self, row: LedgerRow) -> None:
        """Run a row, once more if it misses, and print its line."""
        async with self._gate:
            began = time.monotonic()
            row.held, again = await self._held(row), ""
            if not row.held:
                row.held, again = await self._held(row), ", second run"
            row.date = datetime.datetime.now(datetime.UTC).date().isoformat()
            took = f"{time.monotonic() - began:.0f} s{again}"
        if not row.held:
            self.wrong.append(row.id)
        print(f"{'ok  ' if row.held else 'MISS'} {row.id:4} {row.figure}   [{row.promise}] ({took})", flush=True)

    async def _held(self, row: LedgerRow) -> bool:
        note = self._directory / f"{row.id}.json"
        note.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:randomly", "-p", "no:cacheprovider", row.test]
        environment = {**os.environ, FULL_VARIABLE: "full", RESULTS_VARIABLE: str(self._directory)}
        with (self._directory / f"{row.id}.pytest").open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=environment, stdout=sink, stderr=sink, stdin=asyncio.subprocess.DEVNULL
            )
            try:
                code = await asyncio.wait_for(process.wait(), ROW_SECONDS)
            except (TimeoutError, asyncio.CancelledError) as error:
                process.send_signal(signal.SIGINT)  # so that it ends what it has started
                code = await process.wait()
                if isinstance(error, asyncio.CancelledError):
                    raise
        without = "the test passes" if code == 0 else "ended without a figure"
        row.figure = json.loads(note.read_text())["figure"] if note.exists() else without
        return code == 0


def write_down(rows: Sequence[LedgerRow]) -> None:
    """The ledger and its page, with what was found so far."""
    write_ledger(rows)
    PAGE.write_text(trust_page(rows))


def results_in(named: str | None) -> Path:
    """A folder for what the suite leaves behind: as named, else a fresh one."""
    directory = Path(named or tempfile.mkdtemp(prefix="homing-faults-"))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


async def run(options: argparse.Namespace) -> int:
    rows = read_ledger()
    wanted = set(options.only.split(",")) if options.only else {row.id for row in rows}
    directory = results_in(options.directory)
    print(f"logs and figures are in {directory}", flush=True)
    began, runner = time.monotonic(), Runner(directory)
    try:
        await runner.all([row for row in rows if row.id in wanted])
    finally:
        if not options.keep_figures:
            write_down(rows)
    minutes = (time.monotonic() - began) / 60
    missed = f"MISSED: {', '.join(sorted(runner.wrong))}" if runner.wrong else "all held"
    print(f"{len(wanted)} rows in {minutes:.1f} min, {missed}")
    return 1 if runner.wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="IDS", help="rows by id, with commas between them")
    parser.add_argument("--directory", metavar="DIR", help="where logs and figures go; a fresh one by default")
    parser.add_argument(
        "--keep-figures", action="store_true", help="leave tests/faults.yml and docs/TRUST.md as they are"
    )
    sys.exit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
