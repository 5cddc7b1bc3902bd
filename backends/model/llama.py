"""The forward pass of the Llama family: token ids of a ragged batch in, logits of the rows that sample out."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import torch
from torch import Tensor

from backends.kernels.cpu import MOST_HEAD_SIZE, CpuKernels
from backends.kernels.cpu_layers import CpuLayers, PackedLayer
from backends.kernels.cpu_linear import PackedLinear
from backends.kernels.interface import Kernels, LayerCache, Rotation, StepContext
from backends.model.config import LlamaConfig
from backends.model.linear import Linear, make_head, make_linear
from backends.model.rope import rope_frequencies
from backends.model.weights import LayerWeights, LlamaWeights

SAMPLED_NUMBERS = 1024
"""Numbers of each tensor, evenly spread, by which a model is told from another; besides, every row has its sum."""


class _Layer(NamedTuple):
    """A layer's norms and its prepared matrix products; `head_norms` are those of queries and of keys, if any."""

    attention_norm: Tensor
    qkv: Linear
    attention_output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    head_norms: tuple[Tensor, Tensor] | None


class Llama:
    """A model ready to run. It keeps no state between steps: what it remembers is in the caches given to it."""

    def __init__(self, config: LlamaConfig, weights: LlamaWeights, kernels: Kernels) -> None:
        self.config = config
        self.kernels = kernels
        self.dtype = weights.embedding.dtype
        self.device = str(weights.embedding.device)
        self._frequencies = rope_frequencies(config, weights.rope_divisors).to(self.device)
        tally = _Tally(config, self._frequencies)
        tally.add(weights.outer_tensors())
        self._embedding = weights.embedding
        self._layers = tuple(_prepared(layer, tally) for layer in weights.layers)
        self.size_bytes = tally.size_bytes
        self.identity = tally.identity
        self._cpu_layers = _in_one_call(self._layers, config, kernels)
        self._final_norm = weights.final_norm
        self._head = make_head(weights.head)

    def forward(self, step: StepContext, caches: tuple[LayerCache, ...]) -> Tensor:
        """Logits [R, vocab] float32 of `step.sample_rows`; keys and values of all T tokens are written to `caches`.

        In each layer all keys and values are written before any is read, so sequences of one step may share blocks.
        """
        kernels, epsilon = self.kernels, self.config.norm_epsilon
        rotation = self._rotation(step.positions)
        residual = self._embedding[step.token_ids].float()
        if self._cpu_layers is not None:
            last_update = self._cpu_layers.run(residual, rotation, step, caches)
            return self._logits(residual, last_update, step.sample_rows)
        update: Tensor | None = None
        for layer, cache in zip(self._layers, caches, strict=True):
            hidden = kernels.add_rms_norm(residual, update, layer.attention_norm, epsilon)
            qkv = self._with_head_norms(layer.qkv(hidden), layer.head_norms)
            query = kernels.rotate_and_store(qkv, rotation, cache, step.slots)
            update = layer.attention_output(kernels.paged_attention(query, cache, step))
            hidden = kernels.add_rms_norm(residual, update, layer.mlp_norm, epsilon)
            update = layer.down(kernels.gated_silu(layer.gate_up(hidden)))
        return self._logits(residual, update, step.sample_rows)

    def _with_head_norms(self, qkv: Tensor, norms: tuple[Tensor, Tensor] | None) -> Tensor:
        """Each query and key head normed by itself, as if it were a row of its own."""
        if norms is None:
            return qkv
        config = self.config
        *parts, values = torch.split(qkv, [config.query_size, config.kv_size, config.kv_size], dim=1)
        heads = [part.reshape(-1, config.head_size).float().contiguous() for part in parts]
        normed = [
            self.kernels.add_rms_norm(rows, None, weight, config.norm_epsilon).view(len(qkv), -1)
            for rows, weight in zip(heads, norms, strict=True)
        ]
        return torch.cat([*normed, values], dim=1)

    def _logits(self, residual: Tensor, update: Tensor | None, rows: Tensor) -> Tensor:
        """Only the rows that sample meet the head, a fifth of all weights in a small model."""
        if rows.numel() == 0:
            return torch.empty(0, self.config.vocab_size, device=residual.device)
        sampled_update = update[rows] if update is not None else None
        hidden = self.kernels.add_rms_norm(residual[rows], sampled_update, self._final_norm, self.config.norm_epsilon)
        return self._head(hidden)

    def _rotation(self, positions: Tensor) -> Rotation:
        angles = torch.outer(positions.float(), self._frequencies)
        return Rotation(angles.cos(), angles.sin())


class _Tally:
    """What is told of all tensors while they pass by once: their memory, and what makes this model this model."""

    def __init__(self, config: LlamaConfig, frequencies: Tensor) -> None:
        self.size_bytes = 0
        self._digest = sha256(repr((config, frequencies.tolist())).encode())

    def add(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.size_bytes += tensor.numel() * tensor.element_size()
            sample = tensor.flatten()[:: tensor.numel() // SAMPLED_NUMBERS | 1]
            self._digest.update(sample.float().cpu().numpy().tobytes())
            self._digest.update(_row_sums(tensor).cpu().numpy().tobytes())

    @property
    def identity(self) -> str:
        """The same for the same shape and weights: a digest over both, in which a single changed number shows."""
        return self._digest.hexdigest()


def _row_sums(tensor: Tensor) -> Tensor:
    """Each row's bits summed up as integers, [rows] int64: exact on every device, at the speed of its memory."""
    rows = tensor.reshape(len(tensor), -1).contiguous()
    if rows.shape[1] * rows.element_size() % 8:
        return rows.view(torch.int16).sum(1, dtype=torch.int64)
    return rows.view(torch.int64).sum(1)


def _in_one_call(layers: tuple[_Layer, ...], config: LlamaConfig, kernels: Kernels) -> CpuLayers | None:
    """All layers as one function, where the CPU's matrix units take every product; None elsewhere."""
    if not isinstance(kernels, CpuKernels) or not kernels.has_matrix_units or config.head_size > MOST_HEAD_SIZE:
        return None
    packed = [layer for layer in map(_packed, layers) if layer is not None]
    if len(packed) < len(layers):
        return None
    return CpuLayers(kernels, packed, heads=config.heads, epsilon=config.norm_epsilon)


def _packed(layer: _Layer) -> PackedLayer | None:
    every = (layer.qkv, layer.attention_output, layer.gate_up, layer.down)
    products = [product for product in every if isinstance(product, PackedLinear)]
    if len(products) < len(every) or layer.head_norms is not None:
        return None
    qkv, attention_output, gate_up, down = products
    return PackedLayer(layer.attention_norm, qkv, attention_output, layer.mlp_norm, gate_up, down)


def _prepared(weights: LayerWeights, tally: _Tally) -> _Layer:
    tally.add(weights.tensors())
    norms = (weights.query_norm, weights.key_norm)
    return _Layer(
        attention_norm=weights.attention_norm,
        qkv=make_linear(weights.qkv, weights.qkv_bias),
        attention_output=make_linear(weights.attention_output, weights.attention_output_bias),
        mlp_norm=weights.mlp_norm,
        gate_up=make_linear(weights.gate_up),
        down=make_linear(weights.down),
        head_norms=None if norms[0] is None or norms[1] is None else (norms[0], norms[1]),
    )
