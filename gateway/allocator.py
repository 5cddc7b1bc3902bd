"""Tells the C library's allocator to keep large blocks out of its heap, so that memory does not creep up for weeks.

What the router remembers is in tables of megabytes, which Python moves to a new block now and then. glibc gives such a
block pages of its own at first, and takes that back with the first that is freed: from then on they lie in the heap,
small blocks settle in the hole of each one that moves, and the next needs new pages at the heap's end.
"""

from __future__ import annotations

import ctypes
from typing import Final

OWN_PAGES_BYTES: Final = 2**20
"""Blocks from this size on get pages of their own, and give them back. Some 0.2 ms each, in a body of that size too."""

_M_MMAP_THRESHOLD: Final = -3


def keep_large_blocks_apart() -> bool:
    """Fix the size for the life of the process; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, OWN_PAGES_BYTES) == 1
