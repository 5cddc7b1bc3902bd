"""GGUF files of every supported architecture give the logits of the Hugging Face checkpoint they were made of."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

from backends.kernels.reference import ReferenceKernels
from backends.model.gguf_weights import load_gguf
from backends.model.hf_weights import load_folder
from tests.backends.model.checkpoints import CASES, PROMPT, TOLERANCE, Checkpoint, build_checkpoint, logits_of
from tests.backends.model.gguf_checkpoints import write_gguf

WITHOUT_BIAS = [case for case in CASES if not case.endswith("-bias")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A Llama whose head is its embedding."""
    return build_checkpoint(tmp_path_factory.mktemp("checkpoint"), "llama-tied")


@pytest.mark.parametrize("case", WITHOUT_BIAS)
def test_a_gguf_file_is_the_model_of_its_folder(tmp_path: Path, case: str):
    """Names, order of query and key rows, tied heads, divisors: all of it shows in the logits."""
    checkpoint = build_checkpoint(tmp_path, case)
    loaded = load_gguf(write_gguf(tmp_path / "model.gguf", checkpoint), torch.float32)
    shape = load_folder(tmp_path, torch.float32).config
    assert replace(loaded.config, norm_epsilon=shape.norm_epsilon) == shape
    assert (logits_of(loaded, ReferenceKernels(), [24]) - checkpoint.logits).abs().max() <= TOLERANCE


@torch.inference_mode()
def logits_of_rounded(model: Any, kind: gguf.GGMLQuantizationType) -> torch.Tensor:
    """What transformers computes once every matrix has been through `kind` and back."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.copy_(torch.from_numpy(gguf.dequantize(gguf.quantize(parameter.numpy(), kind), kind)))
    return model(torch.tensor([PROMPT])).logits[0]


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1"])
def test_a_quantised_file_is_the_model_with_its_weights_rounded(checkpoint: Checkpoint, tmp_path: Path, kind: str):
    """Quantised rows are put in order, stacked and multiplied as plain ones are."""
    quantised = gguf.GGMLQuantizationType[kind]
    path = write_gguf(tmp_path / "model.gguf", checkpoint, quantised)
    logits = logits_of(load_gguf(path, torch.float32), ReferenceKernels(), [24])
    rounded = logits_of_rounded(deepcopy(checkpoint.model), quantised)
    assert (logits - rounded).abs().max() <= TOLERANCE
    assert (logits - checkpoint.logits).abs().max() > TOLERANCE
