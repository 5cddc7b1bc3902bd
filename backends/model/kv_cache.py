"""The paged K/V memory of all layers."""

from __future__ import annotations

import torch

from backends.kernels.interface import LayerCache
from backends.model.config import LlamaConfig


class KvCache:
    """Keys and values of `num_blocks` blocks in every layer, each [layers, blocks, block_tokens, kv_heads, head_size].

    The memory starts as zeros that the system hands out page by page, so blocks never used cost nothing.
    """

    def __init__(self, config: LlamaConfig, dtype: torch.dtype, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        shape = (config.layers, num_blocks, block_tokens, config.kv_heads, config.head_size)
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)
        self.layers = tuple(LayerCache(keys, values) for keys, values in zip(self.keys, self.values, strict=True))


def block_bytes(config: LlamaConfig, dtype: torch.dtype, block_tokens: int) -> int:
    """Memory of one block's keys and values in all layers."""
    return 2 * config.layers * block_tokens * config.kv_heads * config.head_size * dtype.itemsize
