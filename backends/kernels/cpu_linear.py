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


def packed_linear(weight: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The product with `weight` [out, in] plus `bias`, summed in float32, given as bfloat16 or float32.

    One copy of the weight serves any number of rows; `weight` itself is no longer needed. ValueError where
    `can_pack` is False.
    """
    functions = _functions()
    if functions is None or not can_pack(weight):
        raise ValueError(f"a weight of shape {tuple(weight.shape)} in {weight.dtype} cannot be packed here")
    outputs, inputs = weight.shape
    packed = functions.memory.take(-(-outputs // PANEL_OUTPUTS) * PANEL_OUTPUTS * inputs)
    functions.pack(address(weight.contiguous()), address(packed), inputs, outputs)
    kept = None if bias is None else bias.contiguous()
    multiply, packed_at = functions.multiply[out_dtype], address(packed)
    bias_at = None if kept is None else address(kept)

    def product(rows: Tensor, _alive: tuple[Tensor, Tensor | None] = (packed, kept)) -> Tensor:
        out = torch.empty(rows.shape[0], outputs, dtype=out_dtype)
        threads = torch.get_num_threads()
        multiply(address(rows), packed_at, bias_at, address(out), rows.shape[0], inputs, outputs, threads)
        return out

    return product


@cache
def _functions() -> _Functions | None:
    """The library's functions; None where there are no matrix units, or no library."""
    try:
        name, library = best_library()
    except OSError:
        return None
    if name != "amx":
        return None
    multiply = {
        dtype: find_function(library, f"multiply_{suffix}", _MULTIPLY)
        for dtype, suffix in ((torch.bfloat16, "bf16"), (torch.float32, "f32"))
    }
    pack = find_function(library, "pack_weight", [_POINTER] * 2 + [_COUNT] * 2)
    return _Functions(pack, multiply, HugePages(torch.bfloat16))
