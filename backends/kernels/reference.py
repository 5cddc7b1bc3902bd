"""The kernels in plain torch: what every other implementation must agree with, and what runs where none is built."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor

from backends.kernels.interface import LayerCache, Rotation, SequenceSpan, StepContext


class ReferenceKernels:
    """Torch operations, for any dtype and device; attention gathers a sequence's blocks, then calls SDPA."""

    name = "reference"

    def add_rms_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """See `Kernels.add_rms_norm`."""
        if update is not None:
            residual.add_(update)
        return functional.rms_norm(residual, weight.shape, weight.to(residual.dtype), epsilon).to(weight.dtype)

    def rotate_and_store(self, qkv: Tensor, rotation: Rotation, cache: LayerCache, slots: Tensor) -> Tensor:
        """See `Kernels.rotate_and_store`."""
        kv_heads, head_size = cache.keys.shape[-2:]
        heads = qkv.shape[1] // head_size - 2 * kv_heads
        parts = qkv.view(qkv.shape[0], -1, head_size)
        values = parts[:, heads + kv_heads :]
        rotated = rotate(parts[:, : heads + kv_heads], rotation)
        query, keys = rotated[:, :heads], rotated[:, heads:]
        cache.keys.view(-1, kv_heads, head_size).index_copy_(0, slots, keys)
        cache.values.view(-1, kv_heads, head_size).index_copy_(0, slots, values)
        return query

    def paged_attention(self, query: Tensor, cache: LayerCache, step: StepContext) -> Tensor:
        """See `Kernels.paged_attention`."""
        out = torch.empty_like(query)
        for span in step.spans:
            attend_span(query, cache, span, out)
        return out.flatten(1)

    def gated_silu(self, gate_up: Tensor) -> Tensor:
        """See `Kernels.gated_silu`."""
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)


def rotate(heads: Tensor, rotation: Rotation) -> Tensor:
    """Turn the pairs (first half, second half) of each head [T, heads, head_size] by the token's angles, in float32."""
    cosines, sines = (part.unsqueeze(1) for part in rotation)
    first, second = heads.float().chunk(2, dim=-1)
    turned = torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
    return turned.to(heads.dtype)


def attend_span(query: Tensor, cache: LayerCache, span: SequenceSpan, out: Tensor) -> None:
    """Attention of one span's rows, written to its rows of `out` [T, heads, head_size]."""
    keys, values = gather(cache.keys, span), gather(cache.values, span)
    out[span.rows] = attend(query[span.rows], keys, values, span)


def gather(cache: Tensor, span: SequenceSpan) -> Tensor:
    """A sequence's cached keys or values in order, [sequence_tokens, kv_heads, head_size]; no slot past its end."""
    return cache.index_select(0, span.block_ids).flatten(0, 1)[: span.sequence_tokens]


def attend(query: Tensor, keys: Tensor, values: Tensor, span: SequenceSpan) -> Tensor:
    """Causal attention of one sequence's new tokens [rows, heads, head_size] over all its tokens."""
    starts_here = span.row_count == span.sequence_tokens
    needs_mask = span.row_count > 1 and not starts_here
    out = functional.scaled_dot_product_attention(
        _by_head(query),
        _by_head(keys),
        _by_head(values),
        attn_mask=span.causal_mask if needs_mask else None,
        is_causal=starts_here and span.row_count > 1,
        enable_gqa=query.shape[1] != keys.shape[1],
    )
    return out[0].transpose(0, 1)


def _by_head(tokens: Tensor) -> Tensor:
    """[tokens, heads, size] → [1, heads, tokens, size], as SDPA wants it."""
    return tokens.transpose(0, 1).unsqueeze(0)
