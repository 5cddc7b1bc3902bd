"""What one placement costs: µs over 8 and 64 workers, for prompts of 1k, 32k and 200k tokens in blocks of 64.

    python bench/place.py [--rounds N] [--check]

Four kinds of prompt: `same` (seen before, somewhere), `turn` (a known conversation and 8 new blocks), `fork` (half a
known prompt, then new) and `new` (nothing known). Directories are as full as told, with conversations of the same
length. Each figure is the least of several rounds of CPU time and includes everything `place` does, effects too.
`--check` exits 1 where `turn` misses the bars at 32k tokens: 60 µs over 8 workers, 150 µs over 64, and no growth with
the size of the directories.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from xxhash import xxh3_128_digest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from router.core import FleetView, Prompt, WorkerView
from router.router import Router
from router.settings import RouterSettings

BLOCK_TOKENS = 64
SHORT, BARRED, LONG = 16, 512, 3125
"""Blocks of a prompt of 1k, 32k and 200k tokens; the bars are for the middle one."""

TURN_BLOCKS = 8
BARS_MICROSECONDS = {8: 60.0, 64: 150.0}
MOST_GROWTH = 1.5
KINDS = ("same", "turn", "fork", "new")
SIZES = {
    8: {SHORT: (20_000,), BARRED: (2_000, 20_000, 100_000), LONG: (20_000,)},
    64: {SHORT: (20_000,), BARRED: (2_000, 20_000), LONG: (20_000,)},
}
"""Directory sizes in blocks, by number of workers and length of the prompts."""

PER_ROUND = 40
_SERIAL = count()


def fresh_blocks(blocks: int) -> list[bytes]:
    """Hashes that no chain had before."""
    return [xxh3_128_digest(next(_SERIAL).to_bytes(8, "little")) for _ in range(blocks)]


def prompt_of(blocks: list[bytes]) -> Prompt:
    """A prompt whose two chains are equal, of new bytes objects as a request would have."""
    chain = [bytes(bytearray(block)) for block in blocks]
    return Prompt(tokens=len(chain) * BLOCK_TOKENS + 7, block_tokens=BLOCK_TOKENS, exact_blocks=chain, key_blocks=chain)


def filled_router(fleet: FleetView, directory_blocks: int, blocks: int) -> tuple[Router, list[list[bytes]]]:
    """A router whose directories are full of conversations, and those that it placed last."""
    router, known = Router(RouterSettings(policy="homing")), []
    for number in range(len(fleet.workers) * directory_blocks // blocks + 64):
        chain = fresh_blocks(blocks - TURN_BLOCKS)
        known = [*known[-63:], chain]
        serve(router, prompt_of(chain), fleet, float(number), f"fill-{number}")
    return router, known


def serve(router: Router, prompt: Prompt, fleet: FleetView, now: float, request_id: str) -> float:
    """Place one request and end it; returns the CPU seconds of the placement alone."""
    before = time.process_time_ns()
    router.place(prompt, fleet, now, request_id=request_id)
    spent = (time.process_time_ns() - before) / 1e9
    router.first_token(request_id, now + 0.5)
    router.finished(request_id, now + 0.9, reported_cached_tokens=None, prompt_tokens=None, output_tokens=100)
    return spent


def prompts(kind: str, known: list[list[bytes]], blocks: int) -> Iterator[Prompt]:
    """Endless prompts of one kind; conversations that grow are remembered as grown."""
    for number in count():
        place = number % len(known)
        chain = known[place][: blocks - TURN_BLOCKS]
        if kind == "new":
            chain = fresh_blocks(blocks)
        elif kind == "fork":
            chain = chain[: blocks // 2] + fresh_blocks(blocks // 2)
        elif kind == "turn":
            known[place] = chain = chain + fresh_blocks(TURN_BLOCKS)
        yield prompt_of(chain)


def costs_microseconds(workers: int, directory_blocks: int, blocks: int, rounds: int) -> dict[str, float]:
    """By kind, the least mean over `rounds` rounds; one router serves all kinds."""
    fleet = FleetView(tuple(WorkerView(f"worker-{number}", cache_blocks=directory_blocks) for number in range(workers)))
    router, known = filled_router(fleet, directory_blocks, blocks)
    now, serial, costs = 1e6, count(), dict.fromkeys(KINDS, float("inf"))
    for kind in KINDS:
        source = prompts(kind, known, blocks)
        for _ in range(rounds):
            batch = [next(source) for _ in range(PER_ROUND)]
            spent = [serve(router, prompt, fleet, now + place, f"{next(serial)}") for place, prompt in enumerate(batch)]
            now += 100.0
            costs[kind] = min(costs[kind], sum(spent) / PER_ROUND * 1e6)
    router.check_integrity()
    return costs


def missed_bars(workers: int, turns: list[float]) -> list[str]:
    """What `turn` misses; `turns` are its costs from the smallest directory to the largest."""
    missed, bar = [], BARS_MICROSECONDS[workers]
    if min(turns) > bar:
        missed.append(f"{workers} workers: {min(turns):.0f} µs is over {bar:.0f} µs")
    if turns[-1] > MOST_GROWTH * turns[0]:
        missed.append(f"{workers} workers: {turns[-1] / turns[0]:.1f} times the cost with a larger directory")
    return missed


def main() -> int:
    """Print the table; with --check, hold it against the bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    missed: list[str] = []
    print("µs per placement\n workers   blocks  directory " + " ".join(f"{kind:>8}" for kind in KINDS))
    for workers, lengths in SIZES.items():
        for blocks, sizes in lengths.items():
            turns = []
            for size in sizes:
                row = costs_microseconds(workers, size, blocks, arguments.rounds)
                turns.append(row["turn"])
                shown = " ".join(f"{row[kind]:>8.1f}" for kind in KINDS)
                print(f"{workers:>8} {blocks:>8} {size:>10} {shown}", flush=True)
            if blocks == BARRED:
                missed += missed_bars(workers, turns)
    print("\n".join(missed) or "all bars are met")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
