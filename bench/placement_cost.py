"""What one placement costs: µs for 512 routing blocks, over 8 and 64 workers, small and full directories.

    python bench/placement_cost.py [--rounds N] [--check]

Four kinds of prompt: `same` (seen before, somewhere), `turn` (a known conversation and 8 new blocks), `new` (nothing
known) and `fork` (half a known prompt, then new). Directories are as full as told. Each figure is the least of several
rounds of CPU time and includes everything `place` does, effects too. `--check` exits 1 where `turn` misses the bars:
60 µs over 8 workers, 150 µs over 64, and no growth with the size of the directories.
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

BLOCKS = 512
BLOCK_TOKENS = 64
BARS_MICROSECONDS = {8: 60.0, 64: 150.0}
PER_ROUND = 40
_SERIAL = count()


def fresh_blocks(blocks: int) -> list[bytes]:
    """Hashes that no chain had before."""
    return [xxh3_128_digest(next(_SERIAL).to_bytes(8, "little")) for _ in range(blocks)]


def prompt_of(blocks: list[bytes]) -> Prompt:
    """A prompt whose two chains are equal, of new bytes objects as a request would have."""
    chain = [bytes(bytearray(block)) for block in blocks]
    return Prompt(tokens=len(chain) * BLOCK_TOKENS + 7, block_tokens=BLOCK_TOKENS, exact_blocks=chain, key_blocks=chain)


def filled_router(fleet: FleetView, directory_blocks: int) -> tuple[Router, list[list[bytes]]]:
    """A router whose directories are full, and the conversations that it placed last."""
    router, known = Router(RouterSettings(policy="homing")), []
    for number in range(len(fleet.workers) * directory_blocks // BLOCKS + 64):
        chain = fresh_blocks(BLOCKS - 8)
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


def prompts(kind: str, known: list[list[bytes]]) -> Iterator[Prompt]:
    """Endless prompts of one kind; conversations that grow are remembered as grown."""
    for number in count():
        place = number % len(known)
        chain = known[place][: BLOCKS - 8]
        if kind == "new":
            chain = fresh_blocks(BLOCKS)
        elif kind == "fork":
            chain = chain[: BLOCKS // 2] + fresh_blocks(BLOCKS // 2)
        elif kind == "turn":
            known[place] = chain = chain + fresh_blocks(8)
        yield prompt_of(chain)


def cost_microseconds(workers: int, directory_blocks: int, kind: str, rounds: int) -> float:
    """The least mean over `rounds` rounds."""
    fleet = FleetView(tuple(WorkerView(f"worker-{number}", cache_blocks=directory_blocks) for number in range(workers)))
    router, known = filled_router(fleet, directory_blocks)
    source, now, best = prompts(kind, known), 1e6, float("inf")
    for number in range(rounds):
        batch = [next(source) for _ in range(PER_ROUND)]
        spent = [serve(router, prompt, fleet, now + place, f"{number}-{place}") for place, prompt in enumerate(batch)]
        now += 100.0
        best = min(best, sum(spent) / PER_ROUND)
    router.check_integrity()
    return best * 1e6


def main() -> int:
    """Print the table; with --check, hold it against the bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    kinds, missed = ("same", "turn", "fork", "new"), []
    print(f"µs per placement, {BLOCKS} blocks\n{'workers':>8} {'directory':>10} " + " ".join(f"{k:>8}" for k in kinds))
    for workers, sizes in ((8, (2_000, 20_000, 100_000)), (64, (2_000, 20_000))):
        turns = []
        for size in sizes:
            row = {kind: cost_microseconds(workers, size, kind, arguments.rounds) for kind in kinds}
            turns.append(row["turn"])
            print(f"{workers:>8} {size:>10} " + " ".join(f"{row[kind]:>8.1f}" for kind in kinds), flush=True)
        if min(turns) > BARS_MICROSECONDS[workers]:
            missed.append(f"{workers} workers: {min(turns):.0f} µs is over {BARS_MICROSECONDS[workers]:.0f} µs")
        if turns[-1] > 1.5 * turns[0]:
            missed.append(f"{workers} workers: {turns[-1] / turns[0]:.1f} times the cost with a larger directory")
    print("\n".join(missed) or "all bars are met")
    return 1 if missed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
