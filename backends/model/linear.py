"""Matrix products with fixed weights, in the fastest form this machine has for their dtype."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor

from backends.kernels.cpu_linear import PackedLinear, can_pack

Linear = Callable[[Tensor], Tensor]
"""[rows, in] → [rows, out]."""


EXACT_LOGITS = 64
"""How many of the best logits of a row are computed in float32 where the product itself is rounded to bfloat16."""


def make_linear(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The product with `weight` [out, in], plus `bias` [out] if there is one.

    bfloat16 on a CPU is repacked once: for our own kernel on the matrix units, else for oneDNN where it takes it.
    """
    if can_pack(weight):
        return PackedLinear(weight, bias, torch.bfloat16)
    if weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and can_prepack():
        return _prepacked(weight, bias)
    return lambda rows: functional.linear(rows, weight, bias)


def make_head(weight: Tensor) -> Linear:
    """The product with `weight` [vocab, in] as float32 logits, of which at least the best are not rounded.

    Rounded to bfloat16 they would count in eighths, with ties among the best.
    """
    if can_pack(weight):
        return PackedLinear(weight, None, torch.float32)
    multiply = make_linear(weight)
    if weight.dtype == torch.float32:
        return multiply
    return lambda rows: _with_exact_best(multiply(rows).float(), rows, weight)


def _with_exact_best(logits: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    best = logits.topk(min(EXACT_LOGITS, logits.shape[1]), dim=-1).indices
    exact = torch.einsum("rbh,rh->rb", weight[best].float(), rows.float())
    return logits.scatter_(1, best, exact)


def can_prepack() -> bool:
    """Whether oneDNN multiplies bfloat16 on this machine (AVX-512 or AMX)."""
    return bool(torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _prepacked(weight: Tensor, bias: Tensor | None) -> Linear:
    """Packed in oneDNN's blocked layout: 1.4 times as fast as `F.linear` at one row, 1.1 times at 512."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda rows: multiply(rows, packed, bias, "none", [], "")
