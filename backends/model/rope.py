"""Rotary positions: how fast each pair of a head turns, and Llama 3's way to stretch that to longer contexts."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from backends.model.config import LlamaConfig


class Llama3Scaling(NamedTuple):
    """`rope_type` "llama3" of a config.json: waves longer than the original context are slowed down by `factor`."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_context_tokens: int


def rope_frequencies(config: LlamaConfig, divisors: Tensor | None) -> Tensor:
    """Radians per position of each pair of a head, [head_size / 2] float32."""
    exponents = torch.arange(0, config.head_size, 2, dtype=torch.int64).float() / config.head_size
    frequencies = 1.0 / config.rope_base**exponents
    return frequencies if divisors is None else frequencies / divisors


def llama3_divisors(config: LlamaConfig, scaling: Llama3Scaling) -> Tensor:
    """What the frequencies are divided by, [head_size / 2] float32: 1 for the fast pairs, `factor` for the slow ones.

    Between the two the frequency itself is mixed. Source: transformers, modeling_rope_utils, "llama3".
    """
    waves_in_context = scaling.original_context_tokens * rope_frequencies(config, None) / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((waves_in_context - low) / (high - low)).clamp(0, 1)
    return 1.0 / ((1 - kept) / scaling.factor + kept)
