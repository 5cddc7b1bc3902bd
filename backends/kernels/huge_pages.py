"""Memory in huge pages, for what every step reads from end to end: with small ones reading takes a tenth longer."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

HUGE_PAGE_BYTES = 2 << 20
CHUNK_BYTES = 32 << 20
"""Tensors are cut from chunks of this size; larger ones have their own."""

_ALIGNMENT_BYTES = 64
_MADV_HUGEPAGE = 14


class HugePages:
    """Gives out tensors of one dtype; a chunk lives as long as any tensor cut from it."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._rest = torch.empty(0, dtype=torch.uint8)

    def take(self, count: int) -> Tensor:
        """`count` elements, not initialised, aligned to a cache line."""
        size_bytes = -(-count * self._dtype.itemsize // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        if size_bytes > CHUNK_BYTES:
            return _new_chunk(size_bytes)[:size_bytes].view(self._dtype)[:count]
        if size_bytes > self._rest.numel():
            self._rest = _new_chunk(CHUNK_BYTES)
        taken, self._rest = self._rest[:size_bytes], self._rest[size_bytes:]
        return taken.view(self._dtype)[:count]


def _new_chunk(size_bytes: int) -> Tensor:
    """Bytes that begin with a huge page, if the system has any to give; small pages do as well, only slower."""
    room = torch.empty(size_bytes + HUGE_PAGE_BYTES, dtype=torch.uint8)
    chunk = room[-room.data_ptr() % HUGE_PAGE_BYTES :][:size_bytes]
    advise = getattr(ctypes.CDLL(None), "madvise", None)
    if advise is not None:
        advise(ctypes.c_void_p(chunk.data_ptr()), ctypes.c_size_t(size_bytes), _MADV_HUGEPAGE)
    return chunk
