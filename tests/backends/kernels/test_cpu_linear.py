"""Products with packed weights: any number of rows and outputs, bias, both result formats; all layers in one call."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from backends.kernels.cpu import CpuKernels
from backends.kernels.cpu_linear import PackedLinear, can_pack
from backends.kernels.huge_pages import CHUNK_BYTES, HugePages
from backends.model.kv_cache import KvCache
from backends.model.linear import make_head, make_linear
from backends.model.llama import Llama
from backends.step_tensors import build_step
from backends.types import Batch, ScheduledSequence
from tests.backends.kernels.conftest import build_cpu_kernels
from tests.backends.tensor_builders import TINY, build_sequence, build_weights

FITTING = replace(TINY, hidden_size=64, intermediate_size=96, head_size=32)
BLOCK_TOKENS = 16


@pytest.fixture(autouse=True)
def matrix_units() -> None:
    """These products run on matrix units alone."""
    if not can_pack(torch.zeros(32, 32, dtype=torch.bfloat16)):
        pytest.skip("this machine has no matrix units, or no compiler")


def build_product(
    rows: int, inputs: int, outputs: int, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, weight and bias."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, inputs), (outputs, inputs), (outputs,))
    first, second, third = (torch.randn(shape, generator=generator).bfloat16() for shape in shapes)
    return first, second, third


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 31, 32, 33, 64, 70])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 32), (64, 50), (576, 96), (1536, 40)])
def test_products_are_exact_but_for_rounding(rows: int, inputs: int, outputs: int):
    """Tiles end anywhere among rows and outputs, inputs come in several chunks; sums are float32."""
    numbers, weight, bias = build_product(rows, inputs, outputs)
    want = numbers.double() @ weight.double().T
    single = PackedLinear(weight, None, torch.float32)(numbers)
    assert (single.double() - want).abs().max() <= 2e-6 * inputs
    rounded = PackedLinear(weight, bias, torch.bfloat16)(numbers)
    assert ((rounded.double() - want - bias.double()).abs() <= 0.004 * (want + bias.double()).abs() + 1e-4).all()


def test_rows_and_threads_change_no_bit():
    """A row's product does not depend on its neighbours."""
    numbers, weight, _ = build_product(40, 576, 128)
    product = PackedLinear(weight, None, torch.float32)
    together = product(numbers)
    assert torch.equal(torch.cat([product(numbers[:1]), product(numbers[1:20]), product(numbers[20:])]), together)
    torch.set_num_threads(2)
    assert torch.equal(product(numbers), together)


def test_what_cannot_be_packed_is_multiplied_otherwise():
    """An odd number of inputs, or float32: the same answer, another way."""
    numbers, weight, bias = build_product(3, 48, 20)
    assert not can_pack(weight)
    assert not can_pack(weight.float())
    want = numbers.double() @ weight.double().T + bias.double()
    assert (make_linear(weight, bias)(numbers).double() - want).abs().max() <= 0.2
    assert (make_linear(weight.float(), bias.float())(numbers.float()).double() - want).abs().max() <= 1e-4
    with pytest.raises(ValueError, match=r"\(20, 48\) in torch.bfloat16 cannot be packed"):
        PackedLinear(weight, None, torch.bfloat16)


def test_logits_are_float32_and_not_rounded():
    """Of a packed head all of them, of another the best."""
    numbers, weight, _ = build_product(2, 64, 50)
    packed = make_head(weight)(numbers)
    assert packed.dtype == torch.float32
    assert (packed.double() - numbers.double() @ weight.double().T).abs().max() <= 1e-4
    other_numbers, other, _ = build_product(2, 48, 200)
    exact = other_numbers.double() @ other.double().T
    best = exact.topk(20).indices
    assert (make_head(other)(other_numbers).double() - exact).gather(1, best).abs().max() <= 1e-4


@torch.inference_mode()
def logits_of(model: Llama) -> torch.Tensor:
    """Two sequences through three steps: a prefill, a decode, a chunk."""
    cache = KvCache(FITTING, torch.bfloat16, 16, BLOCK_TOKENS)
    found = []
    for start, count in ((0, 30), (30, 1), (31, 5)):
        items = [
            ScheduledSequence(build_sequence([step * i % 50 for i in range(start + count)], table), start, count, True)
            for step, table in ((7, [3, 1, 5]), (11, [2, 6, 7]))
        ]
        found.append(model.forward(build_step(Batch(items), BLOCK_TOKENS), cache.layers))
    return torch.cat(found)


class OneByOne(CpuKernels):
    """The same kernels, each operation called for itself."""

    has_matrix_units = False


def test_all_layers_in_one_call_are_the_layers_one_by_one():
    """Bit for bit, K/V and all; on other kernels within what bfloat16 rounds."""
    weights = build_weights(FITTING, torch.bfloat16)
    kernels = build_cpu_kernels()
    at_once = logits_of(Llama(FITTING, weights, kernels))
    assert torch.equal(logits_of(Llama(FITTING, weights, OneByOne())), at_once)
    other = logits_of(Llama(FITTING, weights, build_cpu_kernels("avx2")))
    assert (other - at_once).abs().max() <= 0.02 * at_once.abs().max()


def test_memory_in_huge_pages_is_cut_without_overlap():
    """Tensors keep what is written to them, begin at cache lines, and may be larger than a chunk."""
    memory = HugePages(torch.bfloat16)
    taken = [memory.take(count) for count in (1, 100, CHUNK_BYTES // 4, CHUNK_BYTES // 4, CHUNK_BYTES)]
    for number, tensor in enumerate(taken):
        tensor[:100].fill_(number)
        tensor[-1] = number
    assert all(tensor.data_ptr() % 64 == 0 for tensor in taken)
    for number, tensor in enumerate(taken):
        assert (tensor[:100] == number).all()
        assert tensor[-1] == number
