"""The runner over tensors: one result per item, poison that never leaks, models found and refused."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.reference import ReferenceKernels
from backends.model.linear import make_linear
from backends.model.llama import Llama
from backends.runner import TorchRunner
from backends.types import Batch, Runner, SamplingParams, ScheduledSequence
from tests.backends.tensor_builders import TINY, build_runner, build_sequence, build_weights, generate


def test_the_runner_is_a_runner():
    """It has what the engine's protocol asks for."""
    runner: Runner = build_runner()
    assert runner.vocab_size == TINY.vocab_size


def test_every_item_gets_its_own_answer_or_none():
    """In the batch's order; None where the last token was not reached."""
    runner = build_runner()
    items = [
        ScheduledSequence(build_sequence([1, 2, 3], [1]), 0, 2, False),
        ScheduledSequence(build_sequence([4, 5], [2]), 0, 2, True),
        ScheduledSequence(build_sequence([6] * 9, [3, 4, 5]), 0, 5, False),
    ]
    results = runner.execute(Batch(items))
    assert [result is None for result in results] == [True, False, True]
    assert runner.execute(Batch([])) == []


def test_a_runner_without_a_cache_says_so():
    """`allocate` comes first."""
    runner = TorchRunner(Llama(TINY, build_weights(), ReferenceKernels()))
    with pytest.raises(RuntimeError, match="allocate"):
        runner.execute(Batch([ScheduledSequence(build_sequence([1], [1]), 0, 1, True)]))


def test_poisoned_memory_changes_no_token():
    """A cache full of NaN from an earlier life gives the same answer as a clean one."""
    want = generate(build_runner(), build_sequence([3, 1, 4, 1, 5], [2, 7, 5, 1]), 8)
    poisoned = build_runner()
    poisoned.cache.keys.fill_(float("nan"))
    poisoned.cache.values.fill_(float("nan"))
    assert generate(poisoned, build_sequence([3, 1, 4, 1, 5], [2, 7, 5, 1]), 8) == want


def test_a_seeded_answer_is_the_same_after_being_recomputed():
    """Preemption computes prompt and output anew in other blocks, then goes on as if nothing had been."""
    sampling = SamplingParams(temperature=1.0, top_p=0.9, seed=7)
    whole = generate(build_runner(), build_sequence([1, 2, 3], [1, 2, 3, 4], sampling), 9)
    runner = build_runner()
    before = generate(runner, build_sequence([1, 2, 3], [1, 2, 3, 4], sampling), 4)
    resumed = build_sequence([1, 2, 3, *before], [9, 8, 7, 6], sampling)
    resumed.prompt_tokens = 3
    assert before + generate(runner, resumed, 5) == whole


def test_memory_is_counted_in_bytes():
    """Keys and values of every layer; weights once."""
    runner = build_runner(num_blocks=32, block_tokens=4)
    assert runner.block_bytes(4) == 2 * TINY.layers * 4 * TINY.kv_heads * TINY.head_size * 4
    assert runner.cache.keys.nbytes + runner.cache.values.nbytes == 32 * runner.block_bytes(4)
    per_layer = 2 * 48 + 80 * 48 + 48 * 48 + 3 * 64 * 48
    assert runner.weight_bytes == 4 * (2 * 50 * 48 + 48 + 2 * per_layer)
    assert runner.context_tokens == TINY.context_tokens


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_prepacked_product_is_the_plain_product(rows: int):
    """oneDNN's layout changes the speed, not the numbers beyond bfloat16's rounding."""
    torch.manual_seed(0)
    weight, inputs = (torch.randn(shape).bfloat16() for shape in ((96, 64), (rows, 64)))
    got = make_linear(weight)(inputs)
    assert got.dtype == torch.bfloat16
    assert torch.allclose(got.float(), inputs.float() @ weight.float().T, rtol=2**-8, atol=1e-3)
    exact = make_linear(weight.float())(inputs.float())
    assert torch.equal(exact, inputs.float() @ weight.float().T)
