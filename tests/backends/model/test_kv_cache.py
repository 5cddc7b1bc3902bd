"""Blocks of the paged cache as bytes: out, back in, and copied, in a host's memory and the way a GPU does it."""

from __future__ import annotations

import pytest
import torch

from backends.model.kv_cache import KvCache, block_bytes
from tests.backends.tensor_builders import TINY


def build_cache(dtype: torch.dtype, *, as_on_a_gpu: bool = False) -> KvCache:
    """Six blocks of four tokens, each number different. On a GPU there are no numpy rows over the memory."""
    cache = KvCache(TINY, dtype, 6, 4)
    for tensor in (cache.keys, cache.values):
        tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(tensor.data_ptr() % 97)))
    if as_on_a_gpu:
        cache._rows = None
    return cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("as_on_a_gpu", [False, True], ids=["host", "gpu"])
def test_what_is_read_can_be_written_elsewhere(dtype: torch.dtype, as_on_a_gpu: bool):
    """Blocks 4 and 1 of one cache become 2 and 5 of another; the others stay."""
    source, target = build_cache(dtype, as_on_a_gpu=as_on_a_gpu), build_cache(dtype, as_on_a_gpu=as_on_a_gpu)
    before = target.keys.clone()
    target.write([2, 5], source.read([4, 1]))
    for mine, theirs in ((target.keys, source.keys), (target.values, source.values)):
        assert torch.equal(mine[:, [2, 5]], theirs[:, [4, 1]])
    assert torch.equal(target.keys[:, [0, 1, 3, 4]], before[:, [0, 1, 3, 4]])


def test_bytes_are_the_same_from_a_gpu_and_from_a_host():
    """Keys of all layers, then values: tiers and other workers read them."""
    cache = build_cache(torch.float32)
    on_host = cache.read([3, 0])
    cache._rows = None
    assert cache.read([3, 0]) == on_host
    assert on_host[0] == cache.keys[:, 3].numpy().tobytes() + cache.values[:, 3].numpy().tobytes()
    assert len(on_host[0]) == block_bytes(TINY, torch.float32, 4)
