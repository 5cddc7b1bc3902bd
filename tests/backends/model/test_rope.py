"""How fast rotary positions turn, plain and stretched."""

from __future__ import annotations

import pytest
import torch

from backends.model.rope import Llama3Scaling, llama3_divisors, rope_frequencies
from tests.backends.tensor_builders import TINY


def test_divisors_slow_their_frequencies_down():
    """The first pair turns one radian a token, later pairs slower; a divisor of 4 makes a pair four times slower."""
    plain = rope_frequencies(TINY, None)
    assert plain[0] == 1.0
    assert plain.tolist() == pytest.approx([10_000.0 ** -(index / 4) for index in range(4)])
    assert torch.equal(
        rope_frequencies(TINY, torch.tensor([1.0, 1.0, 4.0, 4.0])) / plain, torch.tensor([1, 1, 0.25, 0.25])
    )


def test_llama_3_leaves_fast_pairs_alone_and_slows_slow_ones_down():
    """A wave that fits the original context more than `high` times is kept, one that fits less than `low` is not."""
    scaling = Llama3Scaling(
        factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context_tokens=128
    )
    waves = 128 * rope_frequencies(TINY, None) / (2 * torch.pi)
    divisors = llama3_divisors(TINY, scaling)
    assert waves.tolist() == pytest.approx([20.4, 2.04, 0.204, 0.0204], rel=0.01)
    kept = (2.037 - 1) / 3
    assert divisors.tolist() == pytest.approx([1.0, 1 / (kept + (1 - kept) / 8), 8.0, 8.0], rel=1e-3)
