"""Large blocks stay out of the heap, shown in a process of its own: the setting cannot be taken back."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

LOOK = """
import ctypes, sys
from gateway.allocator import keep_large_blocks_apart

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

library = ctypes.CDLL(None)
library.mallinfo2.restype = Info
if sys.argv[1] == "apart":
    assert keep_large_blocks_apart()
block = bytearray(16 * 2**20)
del block
before = library.mallinfo2().hblkhd
block = bytearray(4 * 2**20)
print(library.mallinfo2().hblkhd - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
@pytest.mark.parametrize(("how", "apart"), [("as it is", False), ("apart", True)])
def test_a_large_block_has_pages_of_its_own_after_one_was_freed(how: str, apart: bool) -> None:
    """By default a freed one sends the next into the heap."""
    told = subprocess.run([sys.executable, "-c", LOOK, how], capture_output=True, text=True, check=True, timeout=60)
    assert (int(told.stdout) >= 4 * 2**20) is apart
