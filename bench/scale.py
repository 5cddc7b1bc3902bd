"""A fleet at its largest: 64 workers whose directories hold 100,000 routing blocks each; what it takes and costs.

    python bench/scale.py [--workers 64] [--blocks 100000] [--rounds 100] [--check]

Directories are filled with conversations that share heads. Told are: resident memory; what a placement of a
32k-token prompt costs with empty and with full directories; what the event loop stands still for when workers join
(points of one worker, then one ring of all) and when one is forgotten; memory after rounds of joining, filling and
leaving; and how long a full collection of cycles takes. Times are the least of several, of CPU time. `--check` exits
1 where a bar is missed: 800 MB, 5 ms for each change, a placement no dearer by more than a quarter, memory back.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from router.core import FleetView, Prompt, WorkerView
from router.router import Router
from router.settings import RouterSettings

BLOCK_TOKENS = 64
BAR_MEGABYTES = 800.0
BAR_MILLISECONDS = 5.0
BAR_GROWTH = 1.25
BAR_LEFT_MEGABYTES = 60.0
"""Of what the rounds took, what may be left: arenas that are half full, used again by the next round."""

_IDS = count()


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def least_milliseconds(work: Callable[[], object], times: int = 5) -> float:
    spent = []
    for _ in range(times):
        before = time.process_time()
        work()
        spent.append((time.process_time() - before) * 1e3)
    return min(spent)


def fresh_chain(blocks: int) -> list[bytes]:
    return [os.urandom(16) for _ in range(blocks)]


def prompt_of(chain: list[bytes]) -> Prompt:
    """A prompt whose two chains are equal."""
    return Prompt(len(chain) * BLOCK_TOKENS + 7, BLOCK_TOKENS, chain, chain)


def fleet_of(workers: int, blocks: int, first: int = 0) -> FleetView:
    names = [f"vllm-{number}" for number in range(first, first + workers)]
    return FleetView(tuple(WorkerView(name, cache_blocks=blocks) for name in names))


def fill(router: Router, worker: str, blocks: int, chance: random.Random) -> None:
    """Turns of conversations with shared heads, until the directory is full and has begun to drop the oldest."""
    heads, talks, put = [fresh_chain(20) for _ in range(50)], [], 0
    while put < blocks * 1.1:
        old = bool(talks) and chance.random() < 0.6
        chain = talks[chance.randrange(len(talks))] if old else chance.choice(heads)
        new = chance.randrange(1, 12 if old else 60)
        talks = [*talks[-500:], [*chain, *fresh_chain(new)]]
        put += new
        router.warming.believe(f"fill-{next(_IDS)}", prompt_of(talks[-1]), worker, float(put))


def placement_microseconds(router: Router, fleet: FleetView, chain: list[bytes]) -> float:
    """One turn of a known conversation of 512 blocks."""
    prompt, now = prompt_of(chain), count()

    def place() -> None:
        for _ in range(40):
            request_id = f"r{next(_IDS)}"
            router.place(prompt, fleet, float(next(now)), request_id=request_id)
            router.finished(request_id, float(next(now)))

    return least_milliseconds(place, 15) / 40 * 1e3


def membership_milliseconds(workers: int) -> tuple[float, float]:
    """The points of one joiner, and what finds the ring out of date after all of them joined at once."""
    fleet, prompt, router = fleet_of(workers, 1000), prompt_of(fresh_chain(4)), Router(RouterSettings())
    points = [least_milliseconds(lambda name=view.name: router.expect(name, 1), 1) for view in fleet.workers]
    rings = []
    for more in range(5):  # each time a fleet that had no ring yet
        changed = FleetView((*fleet.workers, *fleet_of(1, 1000, workers + more).workers))
        router.expect(changed.workers[-1].name, 1)
        rings.append(least_milliseconds(lambda changed=changed: router.homes_of(prompt, changed, 0.0), 1))
    return median(points), min(rings)


def release(router: Router, workers: int) -> None:
    """Placements go on, and free what is no longer believed."""
    for _ in range(5 * workers):
        router.homes_of(prompt_of([b"0" * 16]), fleet_of(2, 10_000), 0.0)


def rounds_megabytes(rounds: int, chance: random.Random) -> float:
    """H-16: ten workers join, hold 10,000 blocks each and leave, again and again; what memory is left of it."""
    router, settled = Router(RouterSettings()), 0.0
    for number in range(rounds):
        for view in fleet_of(10, 10_000, 10 * number).workers:
            fill(router, view.name, 10_000, chance)
        for view in fleet_of(10, 10_000, 10 * number).workers:
            router.forget(view.name)
        release(router, 10)
        if number == 1:
            settled = resident_megabytes()
    router.check_integrity()
    return resident_megabytes() - settled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    chance, chain = random.Random(1), fresh_chain(512)
    points, ring = membership_milliseconds(options.workers)
    gc.disable()  # memory must come back without it
    left = rounds_megabytes(options.rounds, chance)
    gc.enable()
    fleet, router = fleet_of(options.workers, options.blocks), Router(RouterSettings())
    empty = placement_microseconds(router, fleet, chain)
    before = resident_megabytes()
    for view in fleet.workers:
        fill(router, view.name, options.blocks, chance)
    megabytes, full = resident_megabytes() - before, placement_microseconds(router, fleet, chain)
    collection = least_milliseconds(gc.collect, 2)
    prompt = prompt_of(chain)
    for view in fleet.workers:
        router.forget(view.name)
    forget = least_milliseconds(lambda: router.homes_of(prompt, fleet, 0.0), min(5, options.workers))
    rows = (
        ("directories, MB", megabytes, BAR_MEGABYTES),
        ("placement, directories full over empty", full / empty, BAR_GROWTH),
        ("a joiner's points, ms", points, BAR_MILLISECONDS),
        ("one ring of all, ms", ring, BAR_MILLISECONDS),
        ("a placement after all were forgotten, ms", forget, BAR_MILLISECONDS),
        (f"memory left of {options.rounds} rounds of 10 workers, MB", left, BAR_LEFT_MEGABYTES),
    )
    print(f"{options.workers} workers x {options.blocks} blocks; placement {empty:.0f} -> {full:.0f} µs")
    for name, value, bar in rows:
        print(f"{name:<50} {value:9.2f}   bar {bar:7.2f}   {'ok' if value <= bar else 'MISSED'}")
    print(f"{'a full collection of cycles, ms':<50} {collection:9.2f}")
    return int(options.check and any(value > bar for _, value, bar in rows))


if __name__ == "__main__":
    sys.exit(main())
