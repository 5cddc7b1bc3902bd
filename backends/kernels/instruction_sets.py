"""The instruction sets that the C++ kernels are built for, and which of them this machine has."""

from __future__ import annotations

from typing import NamedTuple

import torch


class InstructionSet(NamedTuple):
    """A name, the compiler's flags for it, and the capabilities (as torch names them) that the machine must have."""

    name: str
    flags: tuple[str, ...]
    capabilities: tuple[str, ...]


_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")
_AVX512_CAPABILITIES = ("avx512_f", "avx512_bw", "avx512_dq", "avx512_vl")

MATRIX_UNITS = "amx"
"""The set whose kernels multiply bfloat16 on matrix units."""

INSTRUCTION_SETS = (
    InstructionSet(
        MATRIX_UNITS,
        (*_AVX512, "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
        (*_AVX512_CAPABILITIES, "avx512_bf16", "amx_tile", "amx_bf16"),
    ),
    InstructionSet("avx512", _AVX512, _AVX512_CAPABILITIES),
    InstructionSet("avx2", _AVX2, ("avx2", "fma3", "f16c")),
)
"""Best first. They are separate libraries, so that no instruction of one can slip into another."""


def supported_sets() -> tuple[InstructionSet, ...]:
    """Those that this machine can run, best first."""
    present = torch.cpu.get_capabilities()
    return tuple(each for each in INSTRUCTION_SETS if all(present.get(name) for name in each.capabilities))


def find_set(name: str) -> InstructionSet:
    """The set of that name; OSError when there is none or this machine has not got it."""
    for each in supported_sets():
        if each.name == name:
            return each
    have = ", ".join(each.name for each in supported_sets()) or "none"
    raise OSError(f"this machine cannot run kernels for {name} (it can run: {have})")
