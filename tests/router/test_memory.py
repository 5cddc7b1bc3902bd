"""What a worker's leaving gives back: all that was believed of it, bit by bit, without a search for cycles."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from router.core import Prompt
from router.directory import Directory
from router.router import Router
from router.settings import RouterSettings
from tests.router.placement_builders import build_fleet, build_prompt

BLOCK_TOKENS = 64
PROMPT = build_prompt(("text", 2))
FLEET = build_fleet(2)


@contextmanager
def no_collection() -> Iterator[None]:
    """Cycles are not looked for meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def believe(router: Router, worker: str, blocks: int, chance: random.Random) -> None:
    """So many blocks and more, in chains that share a head and fork."""
    chains = [[os.urandom(16) for _ in range(8)]]
    for number in range(blocks // 16 + 1):
        chain = [*chance.choice(chains), *[os.urandom(16) for _ in range(16)]]
        chains = [*chains[-50:], chain[:200]]
        prompt = Prompt(len(chain) * BLOCK_TOKENS, BLOCK_TOKENS, chain, chain)
        router.warming.believe(f"{worker}-{number}", prompt, worker, 0.0)


def test_rounds_of_workers_that_come_and_go_leave_nothing() -> None:
    """H-16: ten workers of 4,000 blocks each, again and again under new names: memory is back to its base."""
    router, chance = Router(RouterSettings()), random.Random(1)

    def one_round(number: int) -> None:
        for worker in range(10):
            believe(router, f"w{number}-{worker}", 4000, chance)
        for worker in range(10):
            router.forget(f"w{number}-{worker}")
        for _ in range(2 * 10):
            router.homes_of(PROMPT, FLEET, 0.0)

    with no_collection():
        one_round(0)
        base = sys.getallocatedblocks()
        for number in range(1, 6):
            one_round(number)
        assert sys.getallocatedblocks() - base < 2000, "one round takes about 60,000"
    router.check_integrity()


def test_a_cleared_directory_gives_its_memory_back() -> None:
    """A restart is believed: what was there goes, the bound stays."""
    directory = Directory(10_000)
    with no_collection():
        before = sys.getallocatedblocks()
        for _ in range(100):
            directory.insert([os.urandom(16) for _ in range(50)])
        assert sys.getallocatedblocks() - before > 5000
        directory.clear()
        assert sys.getallocatedblocks() - before < 300
    directory.check_integrity()
    assert (len(directory), directory.bound_blocks) == (0, 10_000)


def test_a_forgotten_worker_is_freed_a_little_with_each_placement() -> None:
    """Nothing of it is believed from the same moment on; the memory of 20,000 blocks comes back over five."""
    router = Router(RouterSettings())
    router.homes_of(PROMPT, build_fleet(1, cache_blocks=20_000), 0.0)
    with no_collection():
        believe(router, "worker-0", 20_000, random.Random(1))
        router.forget("worker-0")
        assert router.stats().workers == ()
        left = []
        for _ in range(6):
            left.append(sys.getallocatedblocks())
            router.homes_of(PROMPT, build_fleet(1), 0.0)
        freed = [before - after for before, after in pairwise(left)]
    assert min(freed[1:4]) > 3000
    assert max(freed) < 15_000
