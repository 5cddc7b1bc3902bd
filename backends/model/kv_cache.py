"""The paged K/V memory of all layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backends.kernels.interface import LayerCache
from backends.model.config import LlamaConfig


class KvCache:
    """Keys and values of `num_blocks` blocks in every layer, each [layers, blocks, block_tokens, kv_heads, head_size].

    The memory starts as zeros, which a host hands out page by page, so that blocks never used cost nothing there.
    """

    def __init__(
        self, config: LlamaConfig, dtype: torch.dtype, num_blocks: int, block_tokens: int, device: str = "cpu"
    ) -> None:
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        shape = (config.layers, num_blocks, block_tokens, config.kv_heads, config.head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        # Slices of numpy arrays cost a tenth of torch's, and a block is read as one slice a layer.
        on_host = self.keys.device.type == "cpu"
        self._rows = (_byte_rows(self.keys), _byte_rows(self.values)) if on_host else None
        self.layers = tuple(LayerCache(keys, values) for keys, values in zip(self.keys, self.values, strict=True))

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole blocks; no target may be a source."""
        for tensor in (self.keys, self.values):
            tensor[:, list(targets)] = tensor[:, list(sources)]

    def read(self, block_ids: Sequence[int]) -> list[bytes]:
        """Each block's bytes: the keys of all layers, then the values."""
        if self._rows is not None:
            keys, values = self._rows
            return [b"".join((*keys[:, block_id], *values[:, block_id])) for block_id in block_ids]
        chosen = torch.tensor(block_ids, device=self.keys.device)
        parts = [tensor.index_select(1, chosen).transpose(0, 1).flatten(1) for tensor in (self.keys, self.values)]
        rows = torch.cat(parts, dim=1).view(torch.uint8).cpu().numpy()
        return [row.tobytes() for row in rows]

    def write(self, block_ids: Sequence[int], payloads: Sequence[bytes | memoryview]) -> None:
        """The reverse of `read`; ValueError, and nothing written, for a payload of another length."""
        layers, size = self.keys.shape[0], 2 * self.keys[:, 0].numel() * self.keys.itemsize
        for payload in payloads:
            if len(payload) != size:
                raise ValueError(f"a block of {len(payload)} bytes was given, {size} are needed")
        if self._rows is not None:
            for block_id, payload in zip(block_ids, payloads, strict=True):
                halves = np.frombuffer(payload, dtype=np.uint8).reshape(2, layers, -1)
                for rows, half in zip(self._rows, halves, strict=True):
                    rows[:, block_id] = half
            return
        chosen = torch.tensor(block_ids, device=self.keys.device)
        flat = torch.frombuffer(bytearray(b"".join(payloads)), dtype=self.keys.dtype).to(self.keys.device)
        by_layer = flat.view(len(chosen), 2, layers, *self.keys.shape[2:]).transpose(0, 2)
        for tensor, blocks in zip((self.keys, self.values), by_layer.unbind(1), strict=True):
            tensor.index_copy_(1, chosen, blocks)


def _byte_rows(tensor: Tensor) -> NDArray[np.uint8]:
    """The same memory as bytes, [layers, blocks, bytes of a block in a layer]."""
    return tensor.flatten(2).view(torch.uint8).numpy()


def block_bytes(config: LlamaConfig, dtype: torch.dtype, block_tokens: int) -> int:
    """Memory of one block's keys and values in all layers."""
    return 2 * config.layers * block_tokens * config.kv_heads * config.head_size * dtype.itemsize
