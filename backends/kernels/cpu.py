"""Kernels in C++ for the CPU (cpu_source/), built at first use with the machine's own compiler, called through ctypes.

They compute what `ReferenceKernels` computes, straight from the paged cache: in float32 on vectors, in bfloat16 on the
matrix units where the machine has them.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from backends.kernels.build import build_library
from backends.kernels.instruction_sets import MATRIX_UNITS, InstructionSet, find_set, supported_sets
from backends.kernels.interface import LayerCache, Rotation, StepContext
from backends.kernels.reference import ReferenceKernels

logger = logging.getLogger(__name__)

MOST_HEAD_SIZE = 256
"""Bound of the kernels' buffers; larger heads go to the reference."""

_SUFFIXES = {torch.float32: "f32", torch.bfloat16: "bf16"}
_POINTER, _COUNT, _THREADS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_ARGUMENTS: dict[str, list[type]] = {
    "add_rms_norm": [_POINTER] * 4 + [_COUNT] * 2 + [ctypes.c_float, _THREADS],
    "rotate_and_store": [_POINTER] * 7 + [_COUNT] * 4 + [_THREADS],
    "gated_silu": [_POINTER] * 2 + [_COUNT] * 2 + [_THREADS],
    "paged_attention": [_POINTER] * 7 + [_COUNT] * 7 + [_THREADS],
}


class CpuKernels:
    """The operations of cpu_source/ for float32 and bfloat16 tensors on the CPU.

    `instruction_set` names one of `INSTRUCTION_SETS`; the best that this machine runs and its compiler knows if not
    given. `parts` cuts each sequence's attention into so many parts (1 to 16); by the sequence's length if not given.
    OSError when no library can be built or loaded; `backends.kernels.choose` then takes the reference.
    """

    def __init__(self, instruction_set: str | None = None, *, parts: int | None = None) -> None:
        if instruction_set is None:
            self.instruction_set, library = best_library()
        else:
            self.instruction_set = instruction_set
            library = load_library(find_set(instruction_set))
        self.name = f"cpu-{self.instruction_set}"
        self.parts = parts or 0
        self._library = library
        self._functions = {
            (name, dtype): find_function(library, f"{name}_{suffix}", arguments)
            for name, arguments in _ARGUMENTS.items()
            for dtype, suffix in _SUFFIXES.items()
        }
        self._reference = ReferenceKernels()

    @property
    def has_matrix_units(self) -> bool:
        """Whether bfloat16 is multiplied on matrix units."""
        return self.instruction_set == MATRIX_UNITS

    def add_rms_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """See `Kernels.add_rms_norm`."""
        out = torch.empty(residual.shape, dtype=weight.dtype)
        added = address(update) if update is not None else None
        self._call("add_rms_norm", weight, added, address(residual), address(out), *residual.shape, epsilon)
        return out

    def rotate_and_store(self, qkv: Tensor, rotation: Rotation, cache: LayerCache, slots: Tensor) -> Tensor:
        """See `Kernels.rotate_and_store`."""
        kv_heads, head_size = cache.keys.shape[-2:]
        heads = qkv.shape[1] // head_size - 2 * kv_heads
        query = torch.empty(qkv.shape[0], heads, head_size, dtype=qkv.dtype)
        tensors = (rotation.cosines, rotation.sines, slots, query, cache.keys, cache.values)
        self._call("rotate_and_store", qkv, *map(address, tensors), qkv.shape[0], heads, kv_heads, head_size)
        return query

    def paged_attention(self, query: Tensor, cache: LayerCache, step: StepContext) -> Tensor:
        """See `Kernels.paged_attention`."""
        block_tokens, kv_heads, head_size = cache.keys.shape[1:]
        rows, heads = query.shape[:2]
        if head_size > MOST_HEAD_SIZE:
            return self._reference.paged_attention(query, cache, step)
        out = torch.empty(rows, heads * head_size, dtype=query.dtype)
        tensors = (out, cache.keys, cache.values, step.query_starts, step.sequence_tokens, step.block_tables)
        sizes = (*step.block_tables.shape, heads, kv_heads, head_size, block_tokens, self.parts)
        self._call("paged_attention", query, *map(address, tensors), *sizes)
        return out

    def gated_silu(self, gate_up: Tensor) -> Tensor:
        """See `Kernels.gated_silu`."""
        rows, width = gate_up.shape
        out = torch.empty(rows, width // 2, dtype=gate_up.dtype)
        self._call("gated_silu", gate_up, address(out), rows, width // 2)
        return out

    def function(self, name: str, arguments: Sequence[type]) -> Callable[..., None]:
        """Another function of the library in use; AttributeError when this instruction set has none of that name."""
        return find_function(self._library, name, arguments)

    def _call(self, name: str, first: Tensor, *arguments: float | None) -> None:
        """Call `name` for the dtype of `first`, its first argument, with torch's number of threads."""
        self._functions[name, first.dtype](address(first), *arguments, torch.get_num_threads())


def best_library() -> tuple[str, ctypes.CDLL]:
    """The best instruction set that this machine runs and its compiler knows, and the library for it."""
    refusal = OSError("the C++ kernels are written for x86-64 with AVX2, which this machine has not got")
    for instruction_set in supported_sets():
        try:
            return instruction_set.name, load_library(instruction_set)
        except OSError as error:
            logger.debug("no kernels for %s: %s", instruction_set.name, error)
            refusal = error
    raise refusal


def load_library(instruction_set: InstructionSet) -> ctypes.CDLL:
    """The kernels for one instruction set; OSError when they cannot be built, or the system withholds the registers."""
    library = ctypes.CDLL(str(build_library(instruction_set.flags)))
    if not library.prepare():
        raise OSError(f"the system does not let this process use {instruction_set.name}")
    return library


def address(tensor: Tensor) -> int:
    """Where a tensor's elements begin; they must lie end to end."""
    if not tensor.is_contiguous():
        raise ValueError(f"a kernel was given a tensor of shape {tuple(tensor.shape)} that is not contiguous")
    return tensor.data_ptr()


def find_function(library: ctypes.CDLL, name: str, arguments: Sequence[type]) -> Callable[..., None]:
    """A function of the library that returns nothing."""
    function = library[name]
    function.argtypes = arguments
    function.restype = None
    return function
