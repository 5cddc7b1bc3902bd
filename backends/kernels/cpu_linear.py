"""Matrix products of bfloat16 rows with weights packed for the CPU's matrix units (cpu_source/linear.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from backends.kernels.cpu import address, best_library, find_function
from backends.kernels.huge_pages import HugePages
from backends.kernels.instruction_sets import MATRIX_UNITS

PANEL_OUTPUTS = 32
"""Outputs are packed in panels of so many, the last one filled up with zeros."""

INPUT_STEP = 32
"""Inputs must be a multiple of it: a tile multiplies so many at a time."""

_POINTER, _COUNT, _THREADS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_MULTIPLY = [_POINTER] * 4 + [_COUNT] * 3 + [_THREADS]


class _Functions(NamedTuple):
    pack: Callable[..., None]
    multiply: dict[torch.dtype, Callable[..., None]]
    memory: HugePages


def can_pack(weight: Tensor) -> bool:
    """Whether this machine has matrix units, and they take this weight [out, in]."""
    fits = weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and weight.shape[1] % INPUT_STEP == 0
    return fits and _functions() is not None


class PackedLinear:
    """The product with a `weight` [out, in] plus `bias`, summed in float32, given as bfloat16 or float32.

    One copy of the weight serves any number of rows; `weight` itself is no longer needed. ValueError where
    `can_pack` is False.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> None:
        functions = _functions()
        if functions is None or not can_pack(weight):
            raise ValueError(f"a weight of shape {tuple(weight.shape)} in {weight.dtype} cannot be packed here")
        self.outputs, self.inputs = weight.shape
        self._packed = functions.memory.take(-(-self.outputs // PANEL_OUTPUTS) * PANEL_OUTPUTS * self.inputs)
        functions.pack(address(weight.contiguous()), address(self._packed), self.inputs, self.outputs)
        self._bias = None if bias is None else bias.contiguous()
        self._multiply = functions.multiply[out_dtype]
        self._out_dtype = out_dtype
        self.packed_at = address(self._packed)
        self.bias_at = None if self._bias is None else address(self._bias)

    def __call__(self, rows: Tensor) -> Tensor:
        """[rows, in] bfloat16 → [rows, out]."""
        count = rows.shape[0]
        out = torch.empty(count, self.outputs, dtype=self._out_dtype)
        sizes = (count, self.inputs, self.outputs, torch.get_num_threads())
        self._multiply(address(rows), self.packed_at, self.bias_at, address(out), *sizes)
        return out


@cache
def _functions() -> _Functions | None:
    """The library's functions; None where there are no matrix units, or no library."""
    try:
        name, library = best_library()
    except OSError:
        return None
    if name != MATRIX_UNITS:
        return None
    multiply = {
        dtype: find_function(library, f"multiply_{suffix}", _MULTIPLY)
        for dtype, suffix in ((torch.bfloat16, "bf16"), (torch.float32, "f32"))
    }
    pack = find_function(library, "pack_weight", [_POINTER] * 2 + [_COUNT] * 2)
    return _Functions(pack, multiply, HugePages(torch.bfloat16))
