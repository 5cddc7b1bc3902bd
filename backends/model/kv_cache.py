"""The paged K/V memory of all layers."""

from __future__ import annotations

from collections.abc import Sequence

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

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole blocks; no target may be a source."""
        for tensor in (self.keys, self.values):
            tensor[:, list(targets)] = tensor[:, list(sources)]

    def read(self, block_ids: Sequence[int]) -> list[bytes]:
        """Each block's bytes: the keys of all layers, then the values."""
        parts = [tensor[:, list(block_ids)].transpose(0, 1).flatten(1) for tensor in (self.keys, self.values)]
        rows = torch.cat(parts, dim=1).cpu().view(torch.uint8).numpy()
        return [row.tobytes() for row in rows]

    def write(self, block_ids: Sequence[int], payloads: Sequence[bytes | memoryview]) -> None:
        """The reverse of `read`; ValueError for a payload of another length."""
        half = self.keys[:, 0].numel()
        for payload in payloads:
            if len(payload) != 2 * half * self.keys.itemsize:
                raise ValueError(
                    f"a block of {len(payload)} bytes was given, {2 * half * self.keys.itemsize} are needed"
                )
        for block_id, payload in zip(block_ids, payloads, strict=True):
            flat = torch.frombuffer(bytearray(payload), dtype=self.keys.dtype)
            for tensor, part in ((self.keys, flat[:half]), (self.values, flat[half:])):
                tensor[:, block_id] = part.view_as(tensor[:, block_id])


def block_bytes(config: LlamaConfig, dtype: torch.dtype, block_tokens: int) -> int:
    """Memory of one block's keys and values in all layers."""
    return 2 * config.layers * block_tokens * config.kv_heads * config.head_size * dtype.itemsize
