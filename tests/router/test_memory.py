"""What a worker's leaving gives back: all that was believed of it, at once, without a search for cycles."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from router.core import Prompt
from router.directory import Directory
from router.router import Router
from router.settings import RouterSettings

BLOCK_TOKENS = 64


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
        router.warming.believe(f"{worker}-{number}", prompt, worker)


def test_rounds_of_workers_that_come_and_go_leave_nothing() -> None:
    """H-16: ten workers of 4,000 blocks each, again and again under new names: memory is back to its base."""
    router, chance = Router(RouterSettings()), random.Random(1)

    def one_round(number: int) -> None:
        for worker in range(10):
            believe(router, f"w{number}-{worker}", 4000, chance)
        for worker in range(10):
            router.forget(f"w{number}-{worker}")

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
