"""What a worker's picture may cost: memory that is bounded and given back, time that does not grow."""

from __future__ import annotations

import gc
import random
import sys
import time
from array import array
from collections.abc import Sequence

import pytest

from router.blocks import chain, seed
from router.cache_events import Stored
from router.encoders import pack
from router.known_blocks import KnownBlocks
from tests.router.event_builders import (
    MODEL,
    SIZE,
    build_known,
    build_removed,
    build_stored,
    own_chain,
)


def test_a_worker_cannot_tell_of_more_than_the_bound():
    """What is beyond it is refused and counted; what is there stays right."""
    known = build_known(build_stored(1, 2), build_stored(3, 4, 5), bound_blocks=4)
    assert (len(known), known.refused) == (4, 1)
    assert known.match(own_chain(3, 4, 5)) == 2
    known.apply([build_removed((1, 2)), build_stored(5, after=(3, 4))])
    assert known.match(own_chain(3, 4, 5)) == 3


def test_h16_memory_is_given_back_with_the_workers():
    """H-16: 100 rounds of 10 workers come and go; after each as much is allocated as before.

    100 blocks a worker here, 10,000 in bench/events.py: what is left behind would be left behind by either.
    """
    sizes = array("q")  # a list would hold an object for each round
    gc.collect()
    for number in range(100):
        full = [build_full(number * 10 + worker) for worker in range(10)]
        full_size = sys.getallocatedblocks()
        full.clear()  # without the garbage collector: there are no cycles that would have to wait for it
        sizes.append(sys.getallocatedblocks())
    assert max(sizes[2:]) - sizes[1] < 0.02 * (full_size - sizes[1])


def test_h15_letting_a_full_worker_go_holds_nobody_up():
    """H-15: while a worker of 20,000 blocks is let go, the next one is registered in far less than 100 ms."""
    known = build_full(1, 20_000)
    started = time.process_time()
    known.clear()
    build_known(build_stored(1))
    assert time.process_time() - started < 0.05


def build_full(worker: int, blocks: int = 100) -> KnownBlocks:
    """A worker's chains of 50 blocks, of which no other has any."""
    known = KnownBlocks(MODEL, SIZE)
    names = [2**40 + worker * blocks + number for number in range(blocks)]
    for start in range(0, blocks, 50):
        run = names[start : start + 50]
        known.apply([Stored(run, None, pack([worker, start, 1, 1] * len(run)), SIZE)])
    assert len(known) == blocks
    return known


def test_churn_leaves_nothing_behind():
    """A worker that stores and evicts for long holds what it holds, and no trace of what it held."""
    known, draw = KnownBlocks(MODEL, SIZE), random.Random(1)
    live: list[tuple[int, ...]] = []
    for number in range(3000):
        blocks = (number, number + 1, number + 2)
        known.apply([build_stored(*blocks)])
        live += [blocks[:3], blocks[:2], blocks[:1]]
        draw.shuffle(live)
        known.apply([build_removed(*live[30:])])
        live = live[:30]
    known.check_integrity()
    assert len(known) == 30
    assert len(known._blocks) <= 3 * 30


@pytest.mark.parametrize("blocks", [2048])
def test_a_match_costs_little_however_long_the_prompt(blocks):
    """A 32k-token prompt in blocks of 16, half of it held: a binary search, microseconds and not a walk."""
    known = KnownBlocks(MODEL, SIZE)
    names = list(range(blocks))
    prompt = pack([token for number in names for token in (number, 1, 2, 3)])
    known.apply([Stored(names[: blocks // 2], None, prompt[: len(prompt) // 2], SIZE)])
    own = chain(seed(salt=None, model=MODEL), prompt, SIZE).blocks
    best = min(_seconds(known, own) for _ in range(5))
    assert known.match(own) == blocks // 2
    assert best < 20e-6


def _seconds(known: KnownBlocks, own: Sequence[bytes]) -> float:
    started = time.process_time()
    for _ in range(1000):
        known.match(own)
    return (time.process_time() - started) / 1000
