"""Steps before the first request: every layout of attention is met, and nobody's block is touched."""

from __future__ import annotations

import pytest
import torch

from backends.kernels.triton_plan import AttentionShape, DeviceSize, plan_attention
from backends.kernels.warm_up import LONG_CONTEXT_TOKENS, idle_step, idle_steps
from tests.backends.tensor_builders import build_runner, build_sequence, generate

DEVICES = (DeviceSize(132, 227 << 10), DeviceSize(20, 64 << 10))


@pytest.mark.parametrize("device", DEVICES, ids=["large", "small"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(32, 8), (28, 4), (16, 16), (9, 3), (64, 4)])
def test_every_layout_of_tiles_is_met(device: DeviceSize, heads: int, kv_heads: int):
    """Split and not, for whatever mean number of new tokens a later step has."""

    def layout(rows: int, tokens: int) -> tuple[int, int, bool]:
        shape = AttentionShape(rows, 1, tokens, heads, kv_heads, 128, 2)
        plan = plan_attention(shape, device)
        return plan.tile_rows, plan.tile_tokens, plan.segments > 1

    steps = list(idle_steps(16, "cpu"))
    met = {layout(step.spans[0].row_count, step.longest_tokens) for step in steps}
    assert met >= {layout(rows, tokens) for rows in range(1, 257) for tokens in (rows, LONG_CONTEXT_TOKENS)}


def test_a_step_is_one_sequence_in_block_0():
    """Its tables reach as far as its tokens."""
    step = idle_step(3, 40, 16, "cpu")
    assert step.block_tables.tolist() == [[0, 0, 0]]
    assert step.spans[0].sequence_tokens == step.sequence_tokens.item() == 40
    assert step.query_starts.tolist() == [0, 3]
    assert step.slots.tolist() == [0, 0, 0]


def test_warming_up_touches_nobody_s_block():
    """Afterwards all blocks but block 0 are as they were, and answers are what they were."""
    cold, warm = build_runner(), build_runner()
    warm.cache.keys[:, 1:] = warm.cache.values[:, 1:] = 7.0
    warm.warm_up()
    assert (warm.cache.keys[:, 1:] == 7.0).all()
    assert (warm.cache.values[:, 1:] == 7.0).all()
    assert torch.isfinite(warm.cache.keys).all()
    prompt = [3, 1, 4, 1, 5, 9]
    answers = [generate(runner, build_sequence(prompt, [2, 4, 6]), 4) for runner in (cold, warm)]
    assert answers[0] == answers[1]
