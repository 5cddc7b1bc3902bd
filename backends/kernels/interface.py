"""What a set of kernels must compute for one model step, and the step's shape as they see it.

`reference.py` is the readable answer; another implementation agrees with it (tests/backends/kernels). All work in
place on the caches that they are given. T tokens of S sequences are computed in one step, laid end to end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True)
class SequenceSpan:
    """One sequence's part of a step, on the host: rows `first_row` … of the step, out of `sequence_tokens` so far.

    The span's rows are the last ones of the sequence: everything before them is in the cache already. `block_ids`
    [blocks] int32 covers `sequence_tokens`.
    """

    first_row: int
    row_count: int
    sequence_tokens: int
    block_ids: Tensor = field(repr=False)

    @property
    def rows(self) -> slice:
        """The span's rows among the step's."""
        return slice(self.first_row, self.first_row + self.row_count)

    @cached_property
    def causal_mask(self) -> Tensor:
        """[row_count, sequence_tokens] bool: the i-th new token sees everything before it and itself."""
        cached_tokens = self.sequence_tokens - self.row_count
        ones = torch.ones(self.row_count, self.sequence_tokens, dtype=torch.bool, device=self.block_ids.device)
        return ones.tril(cached_tokens)


@dataclass(frozen=True, eq=False)
class StepContext:
    """One step's tensors.

    `token_ids`, `positions` and `slots` are [T] int64; a token's slot is `block id · block tokens + offset`.
    `block_tables` [S, most blocks] int32 (rows padded with 0), `sequence_tokens` [S] int32 counts cached and new
    tokens, `query_starts` [S + 1] int32 says where each sequence's rows begin. `sample_rows` [R] int64 are the rows
    whose logits are wanted. `spans` says the same for loops on the host.
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    block_tables: Tensor
    sequence_tokens: Tensor
    query_starts: Tensor
    sample_rows: Tensor
    spans: tuple[SequenceSpan, ...]

    @cached_property
    def longest_tokens(self) -> int:
        """Tokens of the longest sequence."""
        return max(span.sequence_tokens for span in self.spans)

    @cached_property
    def decodes(self) -> Tensor:
        """Places in `spans` of the sequences with one new token, [count] int64."""
        places = [place for place, span in enumerate(self.spans) if span.row_count == 1]
        return torch.tensor(places, dtype=torch.int64, device=self.slots.device)

    @cached_property
    def chunks(self) -> tuple[SequenceSpan, ...]:
        """The spans with more than one new token."""
        return tuple(span for span in self.spans if span.row_count > 1)


class Rotation(NamedTuple):
    """Rotary angles of a step's tokens: `cosines` and `sines` are [T, head_size / 2] float32."""

    cosines: Tensor
    sines: Tensor


class LayerCache(NamedTuple):
    """One layer's paged cache: `keys` and `values` are [blocks, block_tokens, kv_heads, head_size]."""

    keys: Tensor
    values: Tensor


class Kernels(Protocol):
    """The operations of a step that are not matrix products."""

    @property
    def name(self) -> str:
        """For the start-up line."""

    def add_rms_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """Add `update` to `residual` in place, both [T, hidden]; return RMS norm of the sum, times `weight`.

        `residual` is float32 whatever the model's dtype, which `update`, `weight` and the result have: rounded in
        every layer to bfloat16, the sum of all layers would lose half of its accuracy.
        """

    def rotate_and_store(self, qkv: Tensor, rotation: Rotation, cache: LayerCache, slots: Tensor) -> Tensor:
        """Rotate queries and keys, write keys and values to their slots, return queries [T, heads, head_size].

        `qkv` is [T, (heads + 2 · kv_heads) · head_size]: all query heads, then key heads, then value heads. A head's
        halves are rotated against each other (as in Hugging Face's Llama).
        """

    def paged_attention(self, query: Tensor, cache: LayerCache, step: StepContext) -> Tensor:
        """Causal attention of `query` [T, heads, head_size] over each sequence's own cached and new tokens.

        Query heads are shared out evenly over the key-value heads. Scaled by head_size ** -0.5. Slots past a
        sequence's end are never read into a result, whatever they hold. Returns [T, heads · head_size].
        """

    def gated_silu(self, gate_up: Tensor) -> Tensor:
        """[T, 2 · n] → [T, n]: silu of the first half times the second half."""
