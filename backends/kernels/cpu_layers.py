"""All layers of a step in one call into C++ (cpu_source/layers.cpp), where every product runs on the matrix units.

It computes what `Llama.forward` spells out operation by operation; with a few rows the way through Python would cost
a quarter of the step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backends.kernels.cpu import CpuKernels, address
from backends.kernels.cpu_linear import PackedLinear
from backends.kernels.interface import LayerCache, Rotation, StepContext

_POINTER, _COUNT, _THREADS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_RUN_LAYERS = [_POINTER] * 4 + [_COUNT] * 3 + [ctypes.c_float, _THREADS]


class PackedLayer(NamedTuple):
    """One layer's norms and products."""

    attention_norm: Tensor
    qkv: PackedLinear
    attention_output: PackedLinear
    mlp_norm: Tensor
    gate_up: PackedLinear
    down: PackedLinear


class CpuLayers:
    """The layers of one model on `kernels`, whose instruction set must have matrix units."""

    def __init__(self, kernels: CpuKernels, layers: Sequence[PackedLayer], *, heads: int, epsilon: float) -> None:
        self._run = kernels.function("run_layers", _RUN_LAYERS)
        self._parts = kernels.parts
        self._layers = tuple(layers)
        self._heads, self._epsilon = heads, epsilon
        self._pointers = torch.tensor([_pointers(layer) for layer in layers], dtype=torch.int64)
        self._caches: Sequence[LayerCache] | None = None
        self._memory = torch.empty(0, dtype=torch.int64)

    def run(self, residual: Tensor, rotation: Rotation, step: StepContext, caches: Sequence[LayerCache]) -> Tensor:
        """Add all layers but the last update to `residual` [T, hidden] float32; return that update, bfloat16."""
        rows, hidden_size = residual.shape
        layer, block_tokens = self._layers[0], caches[0].keys.shape[1]
        kv_heads, head_size = caches[0].keys.shape[2:]
        query_size, intermediate = layer.attention_output.inputs, layer.down.inputs
        widths = (hidden_size, hidden_size, max(layer.qkv.outputs, 2 * intermediate), query_size)
        rooms = [torch.empty(rows, width, dtype=torch.bfloat16) for width in (*widths, max(query_size, intermediate))]
        sizes = (len(self._layers), hidden_size, intermediate, self._heads, kv_heads, head_size, block_tokens)
        tensors = (residual, *rotation, step.slots, step.query_starts, step.sequence_tokens, step.block_tables, *rooms)
        shape = (_COUNT * (len(sizes) + 1))(*sizes, self._parts)
        pointers = (_POINTER * len(tensors))(*map(address, tensors))
        arrays = (address(self._pointers), address(self._cache_pointers(caches)), shape, pointers)
        self._run(*arrays, rows, *step.block_tables.shape, self._epsilon, torch.get_num_threads())
        return rooms[0]

    def _cache_pointers(self, caches: Sequence[LayerCache]) -> Tensor:
        """Where each layer's keys and values begin; the same caches come step after step."""
        if caches is not self._caches:
            self._memory = torch.tensor([[address(part) for part in cache] for cache in caches], dtype=torch.int64)
            self._caches = caches
        return self._memory


def _pointers(layer: PackedLayer) -> list[int]:
    """In the order of `Layer` in layers.cpp; 0 where there is no bias."""
    products = (layer.qkv, layer.attention_output)
    qkv, output = ([product.packed_at, product.bias_at or 0] for product in products)
    norms = address(layer.attention_norm), address(layer.mlp_norm)
    return [norms[0], *qkv, *output, norms[1], layer.gate_up.packed_at, layer.down.packed_at]
