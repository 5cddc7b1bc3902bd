"""What this gateway costs beside other routers, in one run: CPU per request and per event, added time, memory.

    make bench-overhead        python bench/overhead.py [--json FILE] [--only NAMES] [--rounds N] [--write-docs]

All routers are up together in front of the same dummy workers, and take turns in every round. CPU time of the whole
process group is the judge; a figure is the least of the rounds. Heads seen before: 32 bodies that share 8 heads.
Unseen: no text of a body was ever sent. Exits 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.costs.bars import EVENTS, OURS, UNSEEN, judge, table, verdicts
from bench.costs.document import write_document
from bench.costs.load import (
    SIZES,
    WORKERS,
    Load,
    backend_command,
    build,
    cpu_seconds,
    resident_bytes,
    seen,
    send,
    unseen,
)
from bench.costs.routers import ROUTERS, Absent, Stage
from bench.costs.split import split
from bench.live.processes import Child, ChildFailed, free_ports, running

CPU_SECONDS = 0.5
"""About how much CPU time one measurement takes."""

MOST_REQUESTS, FEWEST_REQUESTS = 6000, 32
UNSEEN_BODIES = 250
STREAMS = 128
LATENCY = "added p50 µs", "added p99 µs"


@dataclass
class Measured:
    """One router: its process, its port, and the least of every figure so far; `times` are µs by percentile."""

    child: Child
    port: int
    costs: dict[str, float] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    resident_megabytes: float = 0.0

    def least(self, cell: str, microseconds: float) -> None:
        """Take in a figure."""
        self.costs[cell] = min(microseconds, self.costs.get(cell, microseconds))


async def cost(directory: Path, router: Measured, load: Load, *, by: str = "ok") -> float:
    """µs of CPU for each request, or for each of what the generator counts as `by`."""
    before = cpu_seconds(router.child)
    counted = await send(directory, router.port, load)
    return (cpu_seconds(router.child) - before) / counted[by] * 1e6


async def measure_round(directory: Path, routers: Mapping[str, Measured], number: int) -> None:
    """Every cell once, the routers taking turns within it."""
    for size in SIZES:
        bodies = seen(directory, size)
        for router in routers.values():
            if not number:
                await send(directory, router.port, Load(bodies, 128))
            known = router.costs.get(size) or await cost(directory, router, Load(bodies, FEWEST_REQUESTS))
            count = max(FEWEST_REQUESTS, min(MOST_REQUESTS, int(CPU_SECONDS / known * 1e6)))
            router.least(size, await cost(directory, router, Load(bodies, count)))
    bodies = unseen(directory, "32 KB", UNSEEN_BODIES, number)
    for router in routers.values():
        router.least(UNSEEN, await cost(directory, router, Load(bodies, UNSEEN_BODIES)))
    for router in routers.values():
        load = Load(seen(directory, "1 KB", "sse20"), STREAMS, callers=64)
        router.least(EVENTS, await cost(directory, router, load, by="events"))


async def measure_times(directory: Path, routers: Mapping[str, Measured], backend_port: int) -> None:
    """What a router adds to the time of one caller's requests of 32 KB, beside asking a worker itself."""
    load = Load(seen(directory, "32 KB"), 400, callers=1)
    for _ in range(3):
        direct = await send(directory, backend_port, load)
        for router in routers.values():
            counted = await send(directory, router.port, load)
            for name, at in zip(LATENCY, ("p50", "p99"), strict=True):
                added = counted["total_us"][at] - direct["total_us"][at]
                router.times[name] = min(added, router.times.get(name, added))
    for router in routers.values():
        router.resident_megabytes = resident_bytes(router.child) / 1e6


@asynccontextmanager
async def routers_up(stage: Stage, names: Sequence[str], absent: dict[str, str]) -> AsyncIterator[dict[str, Measured]]:
    """Start those that are here; the others' reasons go into `absent`."""
    async with AsyncExitStack() as stack:
        up = {}
        for name in names:
            try:
                started = ROUTERS[name](stage)
                child = await stack.enter_async_context(running(started.command))
                up[name] = Measured(child, started.port)
                await send(stage.directory, started.port, Load(seen(stage.directory, "1 KB"), 32))
            except (Absent, ChildFailed) as error:
                up.pop(name, None)
                absent[name] = str(error)
                print(f"  {name} is absent: {error}", file=sys.stderr, flush=True)
        yield up


async def run(names: Sequence[str], rounds: int, directory: Path) -> dict[str, Any]:
    """The whole comparison, as data."""
    build(directory)
    ports = free_ports(WORKERS)
    absent: dict[str, str] = {}
    workers, stage = running(backend_command(directory, ports)), Stage(directory, ports)
    async with workers, routers_up(stage, names, absent) as routers:
        for number in range(rounds):
            print(f"  round {number + 1} of {rounds}", file=sys.stderr, flush=True)
            await measure_round(directory, routers, number)
        await measure_times(directory, routers, ports[0])
        return {
            "rounds": rounds,
            "cpu_us": {name: router.costs for name, router in routers.items()},
            "times_us": {name: router.times for name, router in routers.items()},
            "resident_megabytes": {name: router.resident_megabytes for name, router in routers.items()},
            "unseen_split_us": split(unseen(directory, "32 KB", 40, rounds + 1)) if OURS in routers else {},
            "absent": absent,
        }


def report(found: Mapping[str, Any]) -> int:
    """Print everything; 1 when a bar is missed."""
    rows = {
        name: {**costs, **found["times_us"][name], "RSS MB": found["resident_megabytes"][name]}
        for name, costs in found["cpu_us"].items()
    }
    print(f"\nCPU µs, least of {found['rounds']} rounds\n\n{table(rows)}\n")
    parts = found["unseen_split_us"]
    if parts:
        rest = found["cpu_us"][OURS][UNSEEN] - parts["tokenise"] - parts["fold"] - parts["hash"]
        told = ", ".join(f"{name} {parts[name]:,.0f}" for name in ("tokenise", "fold", "hash"))
        print(f"unseen text, 32 KB: {told}, the rest {rest:,.0f} µs\n")
    bars = judge(found["cpu_us"])
    print(verdicts(bars))
    return int(any(each.verdict == "MISSED" for each in bars))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", metavar="FILE", nargs="?", const="-", help="write the figures there too (- or nothing: stdout)"
    )
    parser.add_argument("--only", metavar="NAMES", help=f"of {'; '.join(ROUTERS)}, joined by ;")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write-docs", action="store_true", help="write the table into docs/overhead.md")
    options = parser.parse_args()
    names = [name.strip() for name in options.only.split(";")] if options.only else list(ROUTERS)
    if unknown := set(names) - set(ROUTERS):
        raise SystemExit(f"there is no router {', '.join(sorted(unknown))}; there are {'; '.join(ROUTERS)}")
    with tempfile.TemporaryDirectory(prefix="homing-overhead-") as directory:
        found = asyncio.run(run(names, options.rounds, Path(directory)))
    missed = report(found)
    if options.json == "-":
        print(json.dumps(found))
    elif options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    if options.write_docs:
        write_document(found)
    return missed


if __name__ == "__main__":
    sys.exit(main())
