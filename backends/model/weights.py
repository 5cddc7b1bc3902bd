"""The weights of a Llama-family model as tensors, whichever file they came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer; matrices are [out, in]. Queries, keys, values are stacked in `qkv`, gate above up in `gate_up`.

    `query_norm` and `key_norm` are [head_size]. None is a part that this kind of model does not have.
    """

    attention_norm: Tensor
    qkv: Tensor
    attention_output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_bias: Tensor | None = None
    attention_output_bias: Tensor | None = None
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor that is there."""
        parts = (getattr(self, part.name) for part in fields(self))
        yield from (tensor for tensor in parts if tensor is not None)


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """All weights, of one dtype. `head` is `embedding` itself when the two are tied.

    `layers` may be read from the file anew in every pass over it, so that one layer at a time is in memory.
    `rope_divisors` [head_size / 2] divide the rotary frequencies (Llama 3's scaling); None when there are none.
    """

    embedding: Tensor
    layers: Iterable[LayerWeights]
    final_norm: Tensor
    head: Tensor
    rope_divisors: Tensor | None = None

    def outer_tensors(self) -> Iterator[Tensor]:
        """Every tensor outside the layers, a tied one once."""
        yield from (self.embedding, self.final_norm)
        if self.head is not self.embedding:
            yield self.head
