"""Kernels in C++ for the CPU (cpu.cpp), built at first use with the machine's own compiler and called through ctypes.

They compute what `ReferenceKernels` computes. Attention of a span with several new tokens stays with SDPA, which uses
the matrix units; what is slow there is decoding, where gathering the cache costs more than reading it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from backends.kernels.build import build_library
from backends.kernels.interface import LayerCache, Rotation, StepContext
from backends.kernels.reference import ReferenceKernels, attend_span

MOST_HEAD_SIZE = 256
"""Bound of cpu.cpp's buffers; larger heads go to the reference."""

_SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}
_POINTER, _COUNT, _THREADS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_ARGUMENTS: dict[str, list[type]] = {
    "add_rms_norm": [_POINTER] * 4 + [_COUNT] * 2 + [ctypes.c_float, _THREADS],
    "rotate_and_store": [_POINTER] * 7 + [_COUNT] * 4 + [_THREADS],
    "gated_silu": [_POINTER] * 2 + [_COUNT] * 2 + [_THREADS],
    "attend_decodes": [_POINTER] * 5 + [_COUNT] + [_POINTER] * 3 + [_COUNT] * 5 + [_THREADS],
}


class CpuKernels:
    """The operations of cpu.cpp for float32 and bfloat16 tensors on the CPU.

    OSError when the library cannot be built or loaded; `backends.kernels.choose` then takes the reference.
    """

    name = "cpu"

    def __init__(self) -> None:
        library = ctypes.CDLL(str(build_library()))
        self._functions = {
            (name, dtype): _function(library, f"{name}_{suffix}", arguments)
            for name, arguments in _ARGUMENTS.items()
            for dtype, suffix in _SUFFIXES.items()
        }
        self._reference = ReferenceKernels()

    def add_rms_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """See `Kernels.add_rms_norm`."""
        out = torch.empty(residual.shape, dtype=weight.dtype)
        added = _address(update) if update is not None else None
        self._call("add_rms_norm", weight, added, _address(residual), _address(out), *residual.shape, epsilon)
        return out

    def rotate_and_store(self, qkv: Tensor, rotation: Rotation, cache: LayerCache, slots: Tensor) -> Tensor:
        """See `Kernels.rotate_and_store`."""
        kv_heads, head_size = cache.keys.shape[-2:]
        heads = qkv.shape[1] // head_size - 2 * kv_heads
        query = torch.empty(qkv.shape[0], heads, head_size, dtype=qkv.dtype)
        tensors = (rotation.cosines, rotation.sines, slots, query, cache.keys, cache.values)
        self._call("rotate_and_store", qkv, *map(_address, tensors), qkv.shape[0], heads, kv_heads, head_size)
        return query

    def paged_attention(self, query: Tensor, cache: LayerCache, step: StepContext) -> Tensor:
        """See `Kernels.paged_attention`."""
        block_tokens, kv_heads, head_size = cache.keys.shape[1:]
        heads = query.shape[1]
        if head_size > MOST_HEAD_SIZE:
            return self._reference.paged_attention(query, cache, step)
        out = torch.empty_like(query)
        for span in step.chunks:
            attend_span(query, cache, span, out)
        if step.decodes.numel():
            outputs = (out, cache.keys, cache.values, step.decodes)
            tables = (step.query_starts, step.sequence_tokens, step.block_tables)
            sizes = (step.block_tables.shape[1], heads, kv_heads, head_size, block_tokens)
            count = step.decodes.numel()
            self._call("attend_decodes", query, *map(_address, outputs), count, *map(_address, tables), *sizes)
        return out.flatten(1)

    def gated_silu(self, gate_up: Tensor) -> Tensor:
        """See `Kernels.gated_silu`."""
        rows, width = gate_up.shape
        out = torch.empty(rows, width // 2, dtype=gate_up.dtype)
        self._call("gated_silu", gate_up, _address(out), rows, width // 2)
        return out

    def _call(self, name: str, first: Tensor, *arguments: float | None) -> None:
        """Call `name` for the dtype of `first`, its first argument, with torch's number of threads."""
        self._functions[name, first.dtype](_address(first), *arguments, torch.get_num_threads())


def _address(tensor: Tensor) -> int:
    """Where a tensor's elements begin; they must lie end to end."""
    if not tensor.is_contiguous():
        raise ValueError(f"a kernel was given a tensor of shape {tuple(tensor.shape)} that is not contiguous")
    return tensor.data_ptr()


def _function(library: ctypes.CDLL, name: str, arguments: list[type]) -> Callable[..., None]:
    function = library[name]
    function.argtypes = arguments
    function.restype = None
    return function
