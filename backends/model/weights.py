"""The weights of a Llama-family model as tensors, whichever file they came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; matrices are [out, in]. Queries, keys, values are stacked in `qkv`, gate above up in `gate_up`."""

    attention_norm: Tensor
    qkv: Tensor
    attention_output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """All weights, of one dtype. `head` is `embedding` itself when the two are tied.

    `rope_divisors` [head_size / 2] divide the rotary frequencies (Llama 3's scaling); None when there are none.
    """

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: Tensor
    rope_divisors: Tensor | None = None

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor, a tied one once."""
        yield from (self.embedding, self.final_norm)
        if self.head is not self.embedding:
            yield self.head
        for layer in self.layers:
            yield from (layer.attention_norm, layer.qkv, layer.attention_output)
            yield from (layer.mlp_norm, layer.gate_up, layer.down)

    @property
    def size_bytes(self) -> int:
        """Memory of all tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())
