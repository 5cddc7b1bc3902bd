"""The plain baseline of bench/worker.py: SmolLM2 in eager torch bfloat16, its paged cache gathered for SDPA.

Fused QKV and gate‖up, `F.rms_norm`, `F.linear`, gather + SDPA with `enable_gqa`. Decoding takes sequences of equal
length, which is the best case for it: one gather and one SDPA for the whole batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor

from backends.model.assembly import LoadedWeights
from backends.model.rope import rope_frequencies
from backends.model.weights import LayerWeights

BLOCK_TOKENS = 16


class Eager:
    """A model with a paged cache of `num_blocks` blocks; `tables` [sequences, blocks] name each sequence's blocks."""

    def __init__(self, loaded: LoadedWeights, num_blocks: int) -> None:
        config, weights = loaded
        self._config, self._weights = config, weights
        self._layers = tuple(weights.layers)
        shape = (config.layers, num_blocks, BLOCK_TOKENS, config.kv_heads, config.head_size)
        self._keys, self._values = (torch.zeros(shape, dtype=weights.embedding.dtype) for _ in range(2))
        angles = torch.outer(torch.arange(config.context_tokens).float(), rope_frequencies(config, None))
        self._cosines, self._sines = (
            torch.cat([part] * 2, -1).to(self._keys.dtype) for part in (angles.cos(), angles.sin())
        )

    @torch.inference_mode()
    def run(self, token_ids: Tensor, start: int, tables: Tensor) -> Tensor:
        """The best next token of each sequence: `token_ids` [sequences, new] follow `start` cached ones."""
        config, weights = self._config, self._weights
        count = token_ids.shape[1]
        positions = torch.arange(start, start + count)
        blocks, places = tables[:, positions // BLOCK_TOKENS], positions % BLOCK_TOKENS
        rows = weights.embedding[token_ids]
        for index, layer in enumerate(self._layers):
            attended = self._attend(
                index, layer, self._norm(rows, layer.attention_norm), positions, blocks, places, tables
            )
            rows = rows + functional.linear(attended, layer.attention_output)
            gate, up = functional.linear(self._norm(rows, layer.mlp_norm), layer.gate_up).chunk(2, -1)
            rows = rows + functional.linear(functional.silu(gate) * up, layer.down)
        last = self._norm(rows[:, -1], weights.final_norm)
        return functional.linear(last, weights.head)[:, : config.vocab_size].argmax(-1)

    def _attend(
        self,
        index: int,
        layer: LayerWeights,
        normed: Tensor,
        positions: Tensor,
        blocks: Tensor,
        places: Tensor,
        tables: Tensor,
    ) -> Tensor:
        config, end = self._config, int(positions[-1]) + 1
        heads, kv_heads = config.heads, config.kv_heads
        qkv = functional.linear(normed, layer.qkv).unflatten(-1, (-1, config.head_size))
        turned = self._rotate(qkv[:, :, : heads + kv_heads], positions)
        self._keys[index][blocks, places] = turned[:, :, heads:]
        self._values[index][blocks, places] = qkv[:, :, heads + kv_heads :]
        used = tables[:, : -(-end // BLOCK_TOKENS)]
        keys, values = (
            cache[index][used].flatten(1, 2)[:, :end].transpose(1, 2) for cache in (self._keys, self._values)
        )
        fresh, several = end == len(positions), len(positions) > 1
        mask = (
            torch.ones(len(positions), end, dtype=torch.bool).tril(end - len(positions))
            if several and not fresh
            else None
        )
        attended = functional.scaled_dot_product_attention(
            turned[:, :, :heads].transpose(1, 2),
            keys,
            values,
            attn_mask=mask,
            is_causal=fresh and several,
            enable_gqa=True,
        )
        return attended.transpose(1, 2).flatten(2)

    def _rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        cosines, sines = (table[positions].unsqueeze(1) for table in (self._cosines, self._sines))
        first, second = heads.chunk(2, -1)
        return heads * cosines + torch.cat([-second, first], -1) * sines

    def _norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(rows, weight.shape, weight, self._config.norm_epsilon)
