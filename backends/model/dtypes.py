"""`--dtype`: which number format a model runs in."""

from __future__ import annotations

import torch

from backends.model.linear import can_prepack

DTYPE_NAMES = ("auto", "float32", "bfloat16")


def choose_dtype(name: str) -> torch.dtype:
    """The torch dtype of a `--dtype` value; `auto` is bfloat16 where the CPU multiplies it natively, else float32.

    float32 gives the same tokens with and without the cache; bfloat16 is several times faster, not bit-stable.
    """
    if name not in DTYPE_NAMES:
        raise ValueError(f"--dtype {name!r} is unknown; choose one of {', '.join(DTYPE_NAMES)}")
    if name == "auto":
        return torch.bfloat16 if multiplies_bfloat16() else torch.float32
    return torch.float32 if name == "float32" else torch.bfloat16


def multiplies_bfloat16() -> bool:
    """Whether this CPU has bfloat16 instructions (avx512_bf16 or amx_bf16); emulating them is slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return native and can_prepack()
