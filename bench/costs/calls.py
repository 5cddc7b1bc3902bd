"""How many function calls a request takes, C functions included: a judge of cuts that no busy machine disturbs.

    make bench-calls           python -m bench.costs.calls [--top N] [--only NAMES]

A whole gateway, everything on, runs in this process; dummy workers and the load generator in others. The memos are
warm: 32 bodies that share 8 heads. `µs` is CPU time of the loop's thread in a run of its own, the least of five, and
does depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import io
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import uvloop

from bench.costs.load import EVENTS, SIZES, WORKERS, Load, backend_command, build, seen, send, unseen
from bench.costs.routers import Stage, homing
from bench.live.processes import ROOT, free_ports, running
from gateway.app import Gateway
from gateway.commands.serve import COLLECTIONS
from gateway.config import load_config, load_secrets
from gateway.logs import RequestLog

REQUESTS, STREAMS, TIMED_RUNS = 320, 64, 5


class Counted(NamedTuple):
    """Calls by function in Python, its own and those it makes of C functions, and µs; for one request or event."""

    calls: dict[str, float]
    microseconds: float


async def count(directory: Path, port: int, loads: Sequence[Load], units: int) -> Counted:
    """Run each load but the last for its time, the last for its calls; the figures are for one of `units`."""
    least = float("inf")
    for load in loads[:-1]:
        began = time.thread_time()
        await send(directory, port, load)
        least = min(least, (time.thread_time() - began) / units * 1e6)
    profile = cProfile.Profile()
    profile.enable()
    await send(directory, port, loads[-1])
    profile.disable()
    return Counted(_by_function(profile, units), least)


def _by_function(profile: cProfile.Profile, units: int) -> dict[str, float]:
    calls: dict[str, float] = {}
    for entry in profile.getstats():
        called = [(each.code, each.callcount) for each in entry.calls or ()]
        in_c = sum(times for code, times in called if isinstance(code, str))
        name = "C functions called by C functions" if isinstance(entry.code, str) else _name(entry.code)
        own = 0 if isinstance(entry.code, str) else entry.callcount
        calls[name] = calls.get(name, 0.0) + (own + in_c) / units
    return calls


def _name(code: CodeType) -> str:
    path = Path(code.co_filename)
    place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    return f"{place}:{code.co_firstlineno} {code.co_qualname}"


def tell(cell: str, counted: Counted, top: int) -> None:
    """Print one cell, and who is called most."""
    print(f"{cell:<14} {sum(counted.calls.values()):7.1f} calls {counted.microseconds:7.1f} µs", flush=True)
    for name, calls in sorted(counted.calls.items(), key=lambda each: -each[1])[:top]:
        print(f"    {calls:7.2f}  {name}")


async def measure(directory: Path, only: Sequence[str], top: int) -> None:
    """Every cell in turn, in front of a gateway of our own."""
    build(directory)
    ports = free_ports(WORKERS)
    async with running(backend_command(directory, ports)):
        config = load_config(Path(homing(Stage(directory, ports)).command.arguments[-1]), {})
        log = RequestLog(config.log, io.StringIO())
        async with Gateway(config, load_secrets(config, {}), request_log=log) as gateway:
            gc.set_threshold(*COLLECTIONS)
            port = gateway.api_port
            for size in SIZES:
                load = Load(seen(directory, size), REQUESTS)
                await send(directory, port, load)
                if size in only:
                    tell(size, await count(directory, port, [load] * (TIMED_RUNS + 1), REQUESTS), top)
            if "SSE event" in only:
                stream = Load(seen(directory, "1 KB", "sse20"), STREAMS, callers=STREAMS)
                counted = await count(directory, port, [stream] * (TIMED_RUNS + 1), STREAMS * EVENTS)
                tell("SSE event", counted, top)
            if "unseen" in only:
                draws = [Load(unseen(directory, "32 KB", 100, draw), 100) for draw in range(TIMED_RUNS + 1)]
                tell("unseen, 32 KB", await count(directory, port, draws, 100), top)


def main() -> None:
    """Print the table."""
    cells = [*SIZES, "SSE event", "unseen"]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--top", type=int, default=0, metavar="N", help="list the functions called most")
    parser.add_argument("--only", default=",".join(cells), metavar="NAMES", help=f"of {', '.join(cells)}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="homing-calls-") as directory:
        uvloop.run(measure(Path(directory), options.only.split(","), options.top))


if __name__ == "__main__":
    main()
