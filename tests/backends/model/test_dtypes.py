"""`--device` and `--dtype`: what is there is taken, what is not is said."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from backends.model.dtypes import choose_device, choose_dtype, multiplies_bfloat16
from backends.model.linear import can_prepack


def set_gpu(monkeypatch: pytest.MonkeyPatch, *, bfloat16: bool) -> None:
    """A torch that says it has a GPU, which multiplies bfloat16 or not."""
    has_bfloat16 = {"is_bf16_supported": lambda including_emulation: bfloat16, "is_available": lambda: True}
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(**has_bfloat16))


def test_dtype_names_are_vllm_s():
    """`auto` follows the CPU; an unknown name lists the known ones."""
    assert choose_dtype("float32") == torch.float32
    assert choose_dtype("bfloat16") == torch.bfloat16
    assert choose_dtype("auto") == (torch.bfloat16 if multiplies_bfloat16() else torch.float32)
    assert can_prepack() or not multiplies_bfloat16()
    with pytest.raises(ValueError, match=r"--dtype 'half' is unknown; choose one of auto, float32, float16, bfloat16"):
        choose_dtype("half")


def test_float16_is_for_gpus():
    """No CPU kernel computes it."""
    assert choose_dtype("float16", "cuda") == torch.float16
    with pytest.raises(ValueError, match="--dtype float16 is for GPUs; on a CPU use bfloat16 or float32"):
        choose_dtype("float16", "cpu")


@pytest.mark.parametrize(("bfloat16", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_is_half_precision_on_a_gpu(monkeypatch: pytest.MonkeyPatch, bfloat16: bool, dtype: torch.dtype):
    """bfloat16 where the GPU has it, float16 on an older one."""
    set_gpu(monkeypatch, bfloat16=bfloat16)
    assert choose_dtype("auto", "cuda") == dtype


def test_a_gpu_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch):
    """Unless the CPU is asked for."""
    set_gpu(monkeypatch, bfloat16=True)
    assert [choose_device(name) for name in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said():
    """With what to do; `auto` takes the CPU without a word."""
    assert choose_device("auto") == choose_device("cpu") == "cpu"
    with pytest.raises(ValueError, match=r"--device cuda: torch .* finds no GPU here; use --device cpu"):
        choose_device("cuda")
    with pytest.raises(ValueError, match="--device 'tpu' is unknown; choose one of auto, cpu, cuda"):
        choose_device("tpu")
