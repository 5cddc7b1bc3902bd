"""Runs batches on a real model: one forward pass a step, then one token for every sequence that reached its end."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import torch

from backends.kernels.warm_up import idle_steps
from backends.model.kv_cache import KvCache, block_bytes
from backends.model.llama import Llama
from backends.sampler_outcomes import outcomes
from backends.step_tensors import build_step
from backends.types import Batch, Outcome


class TorchRunner:
    """A `Runner` (backends/types.py) over torch tensors on the model's device, a CPU or a GPU."""

    def __init__(self, model: Llama) -> None:
        self.model = model
        self._cache: KvCache | None = None

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""
        return self.model.config.vocab_size

    @property
    def context_tokens(self) -> int:
        """Longest sequence that the model was trained for."""
        return self.model.config.context_tokens

    @property
    def window_tokens(self) -> int | None:
        """Longest sequence in which every token sees all before it; None when there is no such limit."""
        return self.model.config.window_tokens

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights."""
        return self.model.size_bytes

    @property
    def cache(self) -> KvCache:
        """The paged cache; RuntimeError before `allocate`."""
        if self._cache is None:
            raise RuntimeError("the runner has no KV cache yet: call allocate() first")
        return self._cache

    def block_bytes(self, block_tokens: int) -> int:
        """Memory of one block in all layers."""
        return block_bytes(self.model.config, self.model.dtype, block_tokens)

    def allocate(self, num_blocks: int, block_tokens: int) -> None:
        """Make room for `num_blocks` blocks; what an earlier call made is dropped. A GPU's kernels are compiled too."""
        model = self.model
        self._cache = KvCache(model.config, model.dtype, num_blocks, block_tokens, model.device)
        if model.device != "cpu":
            self.warm_up()

    @torch.inference_mode()
    def warm_up(self) -> None:
        """Compute steps of every layout, over block 0; see `backends.kernels.warm_up`."""
        for step in idle_steps(self.cache.block_tokens, self.model.device):
            self.model.forward(step, self.cache.layers)

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[Outcome]:
        """Compute every item; what came of each, in the batch's order."""
        if batch.copies:
            self.cache.copy([copy.source for copy in batch.copies], [copy.target for copy in batch.copies])
        if not batch.items:
            return []
        step = build_step(batch, self.cache.block_tokens, self.model.device)
        logits = self.model.forward(step, self.cache.layers)
        return outcomes(logits, batch.items)

    def read_blocks(self, block_ids: Sequence[int]) -> list[bytes]:
        """See `Runner.read_blocks`."""
        return self.cache.read(block_ids)

    def write_blocks(self, block_ids: Sequence[int], payloads: Sequence[bytes | memoryview]) -> None:
        """See `Runner.write_blocks`."""
        self.cache.write(block_ids, payloads)

    @property
    def kv_digest(self) -> str:
        """See `Runner.kv_digest`."""
        identity = (self.model.identity, str(self.model.dtype), self.cache.block_tokens, "keys, values by layer")
        return sha256(repr(identity).encode()).hexdigest()[:12]
