"""`--device` and `--dtype`: where a model runs, and in which number format."""

from __future__ import annotations

import torch

from backends.model.linear import can_prepack

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
DEVICE_NAMES = ("auto", "cpu", "cuda")


def choose_device(name: str) -> str:
    """The torch device of a `--device` value; `auto` is the GPU where there is one.

    ValueError for a GPU that is not there. ROCm's GPUs are called cuda too, by torch.
    """
    if name not in DEVICE_NAMES:
        raise ValueError(f"--device {name!r} is unknown; choose one of {', '.join(DEVICE_NAMES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            f"--device cuda: torch {torch.__version__} finds no GPU here; use --device cpu, or install a torch built "
            "for the GPU, and its driver"
        )
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def choose_dtype(name: str, device: str = "cpu") -> torch.dtype:
    """The torch dtype of a `--dtype` value.

    `auto` is bfloat16 where the device multiplies it natively; else float16 on a GPU, float32 on a CPU. float32 gives
    the same tokens with and without the cache; the others are several times faster, not bit-stable.
    """
    if name == "auto":
        return _auto_dtype(device)
    if name not in DTYPES:
        raise ValueError(f"--dtype {name!r} is unknown; choose one of auto, {', '.join(DTYPES)}")
    if name == "float16" and device == "cpu":
        raise ValueError("--dtype float16 is for GPUs; on a CPU use bfloat16 or float32")
    return DTYPES[name]


def _auto_dtype(device: str) -> torch.dtype:
    if device == "cpu":
        return torch.bfloat16 if multiplies_bfloat16() else torch.float32
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if native else torch.float16


def multiplies_bfloat16() -> bool:
    """Whether this CPU has bfloat16 instructions (avx512_bf16 or amx_bf16); emulating them is slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return native and can_prepack()
