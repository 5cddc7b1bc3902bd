"""Tiny random checkpoints, written by transformers, and the logits computed for them by it and by us."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from backends.kernels.interface import Kernels
from backends.model.assembly import LoadedWeights
from backends.model.llama import Llama
from backends.runner import TorchRunner
from backends.step_tensors import build_step
from backends.types import Batch, ScheduledSequence
from tests.backends.tensor_builders import build_sequence

TOLERANCE = 1e-4
VOCABULARY = 97
PROMPT = [(31 * index + 7) % VOCABULARY for index in range(24)]
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "llama3-rope": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-bias": ("Llama", {"attention_bias": True, "head_dim": 24}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 32}),
    "qwen2-tied": ("Qwen2", {"tie_word_embeddings": True, "rope_theta": 1_000_000.0}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3-bias": ("Qwen3", {"head_dim": 8, "attention_bias": True}),
}
"""Name → transformers' family, and how it differs from SIZES."""


class Checkpoint(NamedTuple):
    """A folder, the model that was saved in it, and its logits of PROMPT, [tokens, vocabulary]."""

    folder: Path
    model: Any
    logits: torch.Tensor


@torch.inference_mode()
def build_checkpoint(folder: Path, case: str, **saving: Any) -> Checkpoint:
    """A random model with weights, norms and biases large enough that an error anywhere moves the logits."""
    family, changes = CASES[case]
    config = getattr(transformers, f"{family}Config")(**(SIZES | changes))
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(len(case))
    for name, parameter in model.named_parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2 + ("norm" in name))
    model.save_pretrained(folder, **saving)
    return Checkpoint(folder, model, model(torch.tensor([PROMPT])).logits[0].clone())


@torch.inference_mode()
def logits_of(loaded: LoadedWeights, kernels: Kernels, cuts: list[int]) -> torch.Tensor:
    """Logits of every position of PROMPT, computed in pieces of `cuts` tokens."""
    runner = TorchRunner(Llama(loaded.config, loaded.weights, kernels))
    runner.allocate(9, 4)
    sequence, start, rows = build_sequence(PROMPT, [5, 2, 8, 1, 7, 3]), 0, []
    for count in cuts:
        step = build_step(Batch([ScheduledSequence(sequence, start, count, True)]), 4)
        step = replace(step, sample_rows=torch.arange(count))
        rows.append(runner.model.forward(step, runner.cache.layers))
        start += count
    return torch.cat(rows)
