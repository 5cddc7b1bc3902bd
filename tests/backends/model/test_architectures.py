"""Every supported architecture against Hugging Face's own code, on tiny random checkpoints."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from backends.kernels.choose import choose_kernels
from backends.kernels.interface import Kernels
from backends.kernels.reference import ReferenceKernels
from backends.model.hf_weights import load_folder
from tests.backends.model.checkpoints import CASES, TOLERANCE, Checkpoint, build_checkpoint, logits_of

CHUNKS = {"one chunk": [24], "several chunks": [5, 1, 11, 7], "decoding": [16, *[1] * 8]}


@cache
def best_kernels() -> Kernels:
    return choose_kernels()


@pytest.fixture(scope="module", params=CASES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """One architecture's folder."""
    return build_checkpoint(tmp_path_factory.mktemp("checkpoint"), request.param)


@pytest.mark.parametrize("cuts", CHUNKS.values(), ids=CHUNKS)
def test_logits_are_those_of_transformers(checkpoint: Checkpoint, cuts: list[int]):
    """At every position, however the prompt is cut, on the reference kernels and on the best of this machine."""
    loaded = load_folder(checkpoint.folder, torch.float32)
    assert checkpoint.logits.std() > 0.5
    for kernels in (ReferenceKernels(), best_kernels()):
        assert (logits_of(loaded, kernels, cuts) - checkpoint.logits).abs().max() <= TOLERANCE


def test_in_bfloat16_the_logits_stay_near(checkpoint: Checkpoint):
    """Weights are rounded to 8 bits of mantissa, and nothing else goes wrong: prepacked products with a bias too."""
    logits = logits_of(load_folder(checkpoint.folder, torch.bfloat16), best_kernels(), [24])
    assert (logits - checkpoint.logits).abs().mean() <= 0.05 * checkpoint.logits.std()


@pytest.mark.parametrize("case", ["llama3-rope", "qwen3"])
def test_a_checkpoint_in_several_files_is_the_same_model(tmp_path: Path, case: str):
    """The index says which file holds a tensor."""
    sharded = build_checkpoint(tmp_path, case, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    logits = logits_of(load_folder(tmp_path, torch.float32), ReferenceKernels(), [24])
    assert (logits - sharded.logits).abs().max() <= TOLERANCE


@pytest.mark.parametrize("case", ["llama3-rope", "qwen2-tied"])
def test_a_config_of_transformers_4_is_the_same_model(tmp_path: Path, case: str):
    """`rope_theta` beside `rope_scaling`, its kind called `type`, instead of `rope_parameters`."""
    built = build_checkpoint(tmp_path, case)
    config = json.loads((tmp_path / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    logits = logits_of(load_folder(tmp_path, torch.float32), ReferenceKernels(), [24])
    assert (logits - built.logits).abs().max() <= TOLERANCE
