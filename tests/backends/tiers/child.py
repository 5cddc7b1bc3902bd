"""A process of its own for what cannot be done in pytest's: to be killed, to have no rights, to meet a full disk."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from tests.backends.tiers.builders import build_chain, build_disk, loaded, store_all

NOBODY = 65534
MOST_FILE_BYTES = 64
BLOCKS = 3000


def store_until_killed(folder: Path) -> None:
    """Store and evict without end."""
    disk, blocks = build_disk(folder, blocks=50), build_chain(BLOCKS)
    while True:
        store_all(disk, blocks)


def store_and_load(folder: Path) -> None:
    """Load three blocks that are there, try to store a fourth and to load a broken one; print what happened."""
    disk, blocks = build_disk(folder), build_chain(5)
    if "full" in sys.argv[1]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
    elif os.geteuid() == 0:
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    store_all(disk, blocks[3:4])
    found, broken = len(loaded(disk, blocks[:3])), len(loaded(disk, blocks[4:]))
    disk.reset()
    counters = disk.counters
    print(found, broken, counters.stores, counters.failed_stores, counters.broken, disk.stats().blocks)


if __name__ == "__main__":
    {"kill": store_until_killed}.get(sys.argv[1], store_and_load)(Path(sys.argv[2]))
