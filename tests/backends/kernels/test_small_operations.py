"""Norm, rotation, cache write and gate against their definitions in float64."""

from __future__ import annotations

import math

import pytest
import torch

from backends.kernels.interface import Kernels, LayerCache, Rotation

DTYPES = {torch.float32: 2e-6, torch.bfloat16: 0.04}


def build_rotation(positions: list[int], head_size: int) -> Rotation:
    angles = torch.outer(torch.tensor(positions).float(), 100.0 ** -(torch.arange(head_size // 2) / head_size))
    return Rotation(angles.cos(), angles.sin())


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items())
def test_the_norm_is_of_the_updated_residual(kernels: Kernels, dtype: torch.dtype, tolerance: float):
    """The update is added in place and in float32; the result has root mean square 1, times the weight."""
    torch.manual_seed(0)
    residual, update, weight = torch.randn(5, 96), torch.randn(5, 96).to(dtype), torch.randn(96).to(dtype)
    summed = residual + update
    want = summed / (summed.double().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    got = kernels.add_rms_norm(residual, update, weight, 1e-5)
    assert torch.equal(residual, summed)
    assert got.dtype == dtype
    assert (got.double() - want).abs().max() <= tolerance


def test_the_norm_of_a_first_layer_adds_nothing(kernels: Kernels):
    """Without an update the residual stays as it is."""
    residual = torch.full((2, 64), 3.0)
    got = kernels.add_rms_norm(residual, None, torch.ones(64), 1e-5)
    assert torch.equal(residual, torch.full((2, 64), 3.0))
    assert torch.allclose(got, torch.ones(2, 64))


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items())
@pytest.mark.parametrize(("heads", "kv_heads", "head_size"), [(9, 3, 64), (2, 1, 8)])
def test_keys_and_values_land_in_their_slots(
    kernels: Kernels, dtype: torch.dtype, tolerance: float, heads: int, kv_heads: int, head_size: int
):
    """Queries and keys turn by their token's angles, pair by pair; values do not turn; other slots stay."""
    torch.manual_seed(1)
    positions, slots = [0, 3, 100], torch.tensor([9, 2, 4])
    qkv = torch.randn(3, (heads + 2 * kv_heads) * head_size).to(dtype)
    cache = LayerCache(*(torch.full((3, 4, kv_heads, head_size), 7.0, dtype=dtype) for _ in range(2)))
    rotation = build_rotation(positions, head_size)
    query = kernels.rotate_and_store(qkv, rotation, cache, slots)
    parts = qkv.view(3, -1, head_size).double()
    half = head_size // 2
    pairs = torch.complex(parts[..., :half], parts[..., half:])
    turned = pairs * torch.polar(torch.ones(3, half).double(), torch.atan2(*reversed(rotation)).double()).unsqueeze(1)
    want = torch.cat([turned.real, turned.imag], dim=-1)
    keys, values = (part.view(-1, kv_heads, head_size) for part in cache)
    assert (query.double() - want[:, :heads]).abs().max() <= tolerance
    assert (keys[slots].double() - want[:, heads : heads + kv_heads]).abs().max() <= tolerance
    assert torch.equal(values[slots].double(), parts[:, heads + kv_heads :])
    untouched = [slot for slot in range(12) if slot not in slots.tolist()]
    assert (keys[untouched] == 7).all()
    assert (values[untouched] == 7).all()


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES.items())
def test_the_gate_is_silu(kernels: Kernels, dtype: torch.dtype, tolerance: float):
    """x · sigmoid(x) · up, also where x is far from zero."""
    gate = [-80.0, -3.0, -0.5, 0.0, 0.25, 2.0, 40.0]
    up = [1.0, -2.0, 3.0, 5.0, 1.5, -1.0, 0.5]
    got = kernels.gated_silu(torch.tensor([gate + up] * 2).to(dtype))
    want = [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up, strict=True)]
    assert got.shape == (2, 7)
    assert (got[1].double() - torch.tensor(want).double()).abs().max() <= tolerance
