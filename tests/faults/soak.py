"""A long run with faults sprinkled in: does memory grow, and is everything given back at its end?

    make soak        python -m tests.faults.soak [--requests 100000] [--json FILE]

Real processes. After a warm-up in which the directory and the memory for prompts reach their bounds come windows of
requests with prompts that nobody has asked before; some workers reset, stall, refuse and break off, and some clients
leave. At the end open files, tasks and gauges are compared with what they were after the start.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from tests.faults.client import Client, leave, load, new_nonce
from tests.faults.row import Row
from tests.faults.stage import GatewayProcess, Stage, a_stage, until

WINDOW = 10_000
GROWTH_MIB = 1.0
"""Per 100,000 requests."""

CACHE_BLOCKS = 400
"""Of a worker, 16 tokens each: 100 routing blocks, which a window fills many times over."""

BACK_WITHIN_SECONDS = 30.0
"""Longer than any idle connection to a worker is kept."""

FAULTS = (("rst0", 0.02), ("rst", 0.01), ("error", 0.01), ("stall", 0.002), ("429", 0.01), ("ok", 0.0))
AT_ONCE = 24
WORDS = 600
"""Of a prompt: 4 KB, so that all that remembers prompts by their size has turned over several times in the warm-up."""

WARM_UP = 100_000
"""All that is bounded is full after 30,000; the holes in the allocator's heap have found their sizes after 90,000."""
STARTED_SECONDS = 20.0
"""Until the connections that the start needed have been let go."""


@dataclass(frozen=True)
class Held:
    """What a gateway holds while nothing is asked of it. `gauges` are those that count what is under way."""

    open_files: int
    tasks: int
    gauges: dict[str, float]


@dataclass
class Found:
    """What a soak found; memory in MiB after each window."""

    memory: list[float] = field(default_factory=list)
    window: int = WINDOW
    before: Held | None = None
    after: Held | None = None
    answered: int = 0
    asked: int = 0
    seconds: float = 0.0

    @property
    def slope(self) -> tuple[float, float]:
        """Growth in MiB per 100,000 requests over the windows, and the upper end of its 95 % interval."""
        return slope_of(self.memory, self.window)

    @property
    def given_back(self) -> bool:
        """Exactly; of files fewer may be open, as some that a start needs are let go a while after it."""
        before, after = self.before, self.after
        if before is None or after is None or after.open_files > before.open_files:
            return False
        return (after.tasks, after.gauges) == (before.tasks, before.gauges)

    def left(self) -> str:
        """What is left of the load, in words."""
        before, after = self.before, self.after
        assert before is not None
        assert after is not None
        changed = sorted(dict(before.gauges.items() ^ after.gauges.items()))
        return (
            f"{self.asked} requests in {self.seconds:.0f} s ({self.answered} answered well), open files "
            f"{before.open_files} → {after.open_files}, tasks {before.tasks} → {after.tasks}, "
            f"gauges {changed or 'as before'}"
        )

    def told(self) -> str:
        """The same, and how memory grew."""
        growth, upper = self.slope
        return f"{self.left()}, memory {growth:+.2f} MiB per 100k (95 %: {upper:+.2f})"


def slope_of(memory: Sequence[float], window: int) -> tuple[float, float]:
    """Least squares through equal windows, scaled to 100,000 requests; nan where there are too few."""
    count = len(memory)
    if count < 3:
        return math.nan, math.nan
    middle, mean = (count - 1) / 2, sum(memory) / count
    spread = sum((x - middle) ** 2 for x in range(count))
    slope = sum((x - middle) * (y - mean) for x, y in enumerate(memory)) / spread
    left = sum((y - mean - slope * (x - middle)) ** 2 for x, y in enumerate(memory)) / (count - 2)
    scale = 100_000 / window
    return slope * scale, (slope + T_VALUES.get(count - 2, 2.0) * math.sqrt(left / spread)) * scale


T_VALUES = {1: 12.7, 2: 4.3, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}


async def held(gateway: GatewayProcess) -> Held:
    """Counted over the admin port, whose own connection is the same each time, and in /proc."""
    page = await gateway.metrics()
    gauges = {}
    for line in page.splitlines():
        if line.startswith(("homing_requests_in_flight", "homing_backend_in_flight", "homing_backend_up")):
            name, _, value = line.rpartition(" ")
            gauges[name] = float(value)
    gauges = {name: value for name, value in gauges.items() if value}  # a label's series begins with its first request
    tasks = int(await gateway.metric("homing_event_loop_tasks"))
    return Held(open_files_of(gateway.pid), tasks, gauges)


def open_files_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_mib(pid: int) -> float:
    """Resident memory."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20


async def one_window(stage: Stage, client: Client, count: int) -> tuple[int, int]:
    """So many requests with every fault in turn; asked and answered well."""
    asked = well = 0
    turns = itertools.cycle(FAULTS)
    piece = max(60, count // (4 * len(FAULTS)))
    while asked < count:
        mode, share = next(turns)
        worker = stage.workers[asked // piece % len(stage.workers)]
        await worker.set(mode=mode, share=share)
        answers, *_ = await asyncio.gather(
            load(client, min(piece, count - asked), at_once=AT_ONCE, words=WORDS),
            *(_leave_early(client, number) for number in range(3)),
        )
        await worker.set(mode="ok")
        asked += len(answers)
        well += sum(answer.ok for answer in answers)
    return asked, well


async def _leave_early(client: Client, number: int) -> None:
    await leave(client, asyncio.sleep(0.003 * number), stream=True, abort=number == 1, nonce=new_nonce())


async def settled(gateway: GatewayProcess, seconds: float) -> Held:
    """What it holds after so long, once two looks in a row find the same."""
    await asyncio.sleep(seconds)
    found = [await held(gateway)]

    async def same() -> bool:
        found.append(await held(gateway))
        return found[-1] == found[-2]

    await until(same, seconds=10, every=0.3)
    return found[-1]


async def given_back(gateway: GatewayProcess, before: Held) -> Held:
    """What it holds when it is what it was before, or when time is up: kept connections to workers are let go late."""
    found = [await held(gateway)]

    async def back() -> bool:
        found.append(await held(gateway))
        return Found(before=before, after=found[-1]).given_back

    with suppress(AssertionError):
        await until(back, seconds=BACK_WITHIN_SECONDS, every=0.5)
    return found[-1]


async def soak(stage: Stage, requests: int, window: int, warm_up: int) -> Found:
    """Look, warm up, run the windows, look again."""
    await stage.start_workers(4, cache_blocks=CACHE_BLOCKS)
    gateway = await stage.gateway(log={"level": "info", "request_share": 0.0}, timeouts={"idle_seconds": 0.5})
    client, found = stage.client(gateway), Found(window=window)
    found.before = await settled(gateway, STARTED_SECONDS if stage.row.full else 0.5)
    await one_window(stage, client, warm_up)
    began = time.monotonic()
    found.memory.append(memory_mib(gateway.pid))
    while found.asked < requests:
        asked, well = await one_window(stage, client, min(window, requests - found.asked))
        found.asked, found.answered = found.asked + asked, found.answered + well
        found.memory.append(memory_mib(gateway.pid))
        if stage.row.full:
            print(f"  {found.asked:7} requests, {found.memory[-1]:.2f} MiB", file=sys.stderr, flush=True)
    found.seconds = time.monotonic() - began
    client.close()
    found.after = await given_back(gateway, found.before)
    return found


async def run(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="homing-soak-") as directory:
        async with a_stage(Path(directory), Row("E16", full=True)) as stage:
            found = await soak(stage, options.requests, WINDOW, options.warm_up)
    growth, upper = found.slope
    met = growth <= GROWTH_MIB and found.given_back
    print(
        ("ok    " if met else "MISS  ") + found.told() + f"   [≤ {GROWTH_MIB:g} MiB per 100k; everything exactly back]"
    )
    if options.json:
        figures = {"mib_per_100k": growth, "upper_95": upper, "memory_mib": found.memory, "asked": found.asked,
                   "answered": found.answered, "given_back": found.given_back, "met": met}  # fmt: skip
        _write(Path(options.json), json.dumps(figures, indent=1))
    return 0 if met else 1


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="requests before the first look")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    sys.exit(uvloop.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
