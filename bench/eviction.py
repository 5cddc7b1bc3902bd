"""Which eviction policy hits most: recorded requests, one after the other, through the worker's real block pool.

    PYTHONPATH=. python bench/eviction.py [--json] [--trace NAME ...]

Hit rates are shares of the prompts' tokens. Content is the block ids of the trace; look-up, holding, taking, caching
and giving back are the pool's. What LRU hits on two of the traces is compared with figures from outside.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

from backends.block_pool import BlockPool
from backends.eviction import EVICTION_POLICIES
from bench.block_traces import TRACES, Trace

ALL_BLOCKS = 400_000
"""More than any of the traces has different blocks of: nothing is evicted."""

SIZES = {
    "conversation": (1_000, 3_000, 10_000, 30_000, ALL_BLOCKS),
    "synthetic": (1_000, 3_000, 10_000, 30_000, ALL_BLOCKS),
    "ragpulse": (150, 300, 1_000, 3_000, ALL_BLOCKS),
    "claude_code": (15_000, 30_000, 60_000, ALL_BLOCKS),
}
OUTSIDE_LRU_PERCENT = {
    "conversation": (4.5, 6.7, 21.6, 33.2, 37.4),
    "synthetic": (8.6, 19.4, 43.2, 63.6, 65.1),
}
"""One LRU over the whole trace, computed by other people with other code (block sizes as in SIZES)."""

TOLERANCE_POINTS = 0.15
POLICIES = (*EVICTION_POLICIES, "lru+auto")


class Replayed(NamedTuple):
    """Tokens hit of all tokens, and what the pool cost."""

    hit_rate: float
    microseconds_a_block: float


def replay(trace: Trace, blocks: int, policy: str, *, requests: int | None = None) -> Replayed:
    """Serve the requests one after the other with a pool of so many blocks, each at its time."""
    name, _, auto = policy.partition("+")
    pool = BlockPool(blocks + 1, eviction=name, auto_retention=bool(auto))
    tokens = hit_tokens = names = 0
    start = time.process_time()
    for request in trace.requests[:requests]:
        pool.expire(request.seconds)
        hits = serve(pool, request.keys)
        names += len(request.keys)
        tokens += request.tokens
        hit_tokens += min(hits * trace.block_tokens, request.tokens)
    seconds = time.process_time() - start
    pool.check_integrity([])
    return Replayed(hit_tokens / tokens, seconds / names * 1e6)


def serve(pool: BlockPool, keys: list) -> int:
    """What the prefix cache does for a request: hold what hits, take the rest, cache it, give all back; the hits."""
    table: list[int] = []
    parent = keys[0].parent
    for key in keys:
        found = pool.find(key, parent)
        if found is None:
            break
        block_id, parent = found
        table.append(block_id)
    hits = len(table)
    pool.touch(table)
    table += pool.get_new_blocks(len(keys) - hits)
    for index in range(hits, len(keys)):
        parent = pool.cache_full_block(table[index], keys[index], parent)
    table.reverse()
    pool.free_blocks(table)
    return hits


def check_against_outside(name: str, percents: Iterable[float]) -> None:
    """AssertionError when our LRU hits something else than everybody's."""
    for size, ours, theirs in zip(SIZES[name], percents, OUTSIDE_LRU_PERCENT[name], strict=True):
        assert abs(ours - theirs) <= TOLERANCE_POINTS, f"{name}, {size} blocks: {ours:.2f} % hit, {theirs} % expected"


def measure(name: str) -> dict[str, dict[str, float]]:
    """Hit rates in percent by policy and size, and the mean cost of a block."""
    trace = TRACES[name]()
    figures = {}
    for policy in POLICIES:
        runs = {size: replay(trace, size, policy) for size in SIZES[name]}
        figures[policy] = {str(size): round(100 * run.hit_rate, 2) for size, run in runs.items()}
        figures[policy]["microseconds_a_block"] = round(max(run.microseconds_a_block for run in runs.values()), 2)
        print(name, policy, figures[policy], file=sys.stderr)
    if name in OUTSIDE_LRU_PERCENT:
        check_against_outside(name, [figures["lru"][str(size)] for size in SIZES[name]])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--trace", nargs="+", choices=TRACES, default=list(TRACES), metavar="NAME")
    options = parser.parse_args()
    figures = {name: measure(name) for name in options.trace}
    if options.json:
        print(json.dumps(figures))
        return
    for name, policies in figures.items():
        columns = list(next(iter(policies.values())))
        print(f"\n{name:12}" + "".join(f"{column.replace(str(ALL_BLOCKS), 'all'):>10.10}" for column in columns))
        for policy, row in policies.items():
            print(f"{policy:12}" + "".join(f"{row[column]:10.2f}" for column in columns))


if __name__ == "__main__":
    main()
