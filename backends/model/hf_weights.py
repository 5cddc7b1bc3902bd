"""Loads a Llama-family model from a Hugging Face folder: config.json, and weights in one or more safetensors files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from backends.model.assembly import LoadedWeights, TensorNames, assemble
from backends.model.config import ModelRefusedError
from backends.model.hf_config import read_config
from backends.model.rope import llama3_divisors

NAMES = TensorNames(
    embedding="model.embed_tokens.weight",
    final_norm="model.norm.weight",
    head="lm_head.weight",
    attention_norm="model.layers.{}.input_layernorm",
    query="model.layers.{}.self_attn.q_proj",
    key="model.layers.{}.self_attn.k_proj",
    value="model.layers.{}.self_attn.v_proj",
    attention_output="model.layers.{}.self_attn.o_proj",
    query_norm="model.layers.{}.self_attn.q_norm",
    key_norm="model.layers.{}.self_attn.k_norm",
    mlp_norm="model.layers.{}.post_attention_layernorm",
    gate="model.layers.{}.mlp.gate_proj",
    up="model.layers.{}.mlp.up_proj",
    down="model.layers.{}.mlp.down_proj",
)
CONFIG_FILE = "config.json"
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
DTYPES = ("F32", "F16", "BF16")
"""Number formats of safetensors that are read; others are quantised."""


def load_folder(folder: Path, dtype: torch.dtype, device: str = "cpu") -> LoadedWeights:
    """The model in `folder`, its tensors as `dtype` on `device`.

    ModelRefusedError names an unknown architecture, setting or tensor; a file that is damaged; a file that is missing.
    """
    config = read_config(folder / CONFIG_FILE)
    stored = _SafeTensors(folder, dtype, torch.device(device), tied=config.tied)
    divisors = None if config.scaling is None else llama3_divisors(config.shape, config.scaling)
    weights = assemble(stored, config.shape, NAMES, tied=config.tied, rope_divisors=divisors)
    return LoadedWeights(config.shape, weights)


class _SafeTensors:
    """`StoredTensors` of a folder's safetensors files, which are mapped into memory, not read."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device, *, tied: bool) -> None:
        self._index = _index(folder)
        self._folder = folder
        self._dtype = dtype
        self._device = device
        self._holders: dict[str, tuple[Path, Any]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for path in _files(folder, self._index):
            for name, shape, file in _tensors(path):
                if not _is_left_over(name, tied):
                    self._holders[name] = path, file
                    self.shapes[name] = shape

    def place(self, name: str) -> str:
        """The file that holds the tensor, else the one that should by the index, else the folder."""
        if name in self._holders:
            return str(self._holders[name][0])
        return str(self._folder / self._index.get(name, ""))

    def read(self, name: str) -> Tensor:
        """The tensor; a view into the file if that has the wanted dtype."""
        tensor: Tensor = self._holders[name][1].get_tensor(name)
        return tensor.to(self._device, self._dtype)


def _index(folder: Path) -> Mapping[str, str]:
    """Tensor → file name, of a model in several files; empty for one in a single file."""
    path = folder / INDEX_FILE
    if (folder / SINGLE_FILE).is_file() or not path.is_file():
        return {}
    try:
        index = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in index.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefusedError(f"{path}: no JSON object with a weight_map of tensors to files") from error


def _files(folder: Path, index: Mapping[str, str]) -> list[Path]:
    paths = [folder / name for name in sorted(set(index.values()) or {SINGLE_FILE})]
    for path in paths:
        if not path.is_file():
            raise ModelRefusedError(f"{path} is missing: weights are read from safetensors files only")
    return paths


def _tensors(path: Path) -> Iterator[tuple[str, tuple[int, ...], Any]]:
    """Name, shape and open file of every tensor in one file."""
    try:
        file: Any = safe_open(path, framework="pt")
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            tensor = file.get_slice(name)
            if tensor.get_dtype() not in DTYPES:
                kinds = f"{tensor.get_dtype()}, which is not read here (only {', '.join(DTYPES)})"
                raise ModelRefusedError(f"{path}: tensor {name!r} is stored as {kinds}")
            yield name, tuple(tensor.get_shape()), file
    except SafetensorError as error:
        raise ModelRefusedError(f"{path}: no safetensors file that can be read: {error}") from error


def _is_left_over(name: str, tied: bool) -> bool:
    """Tensors that old checkpoints carry along and nobody uses: tables that can be computed, a head that is tied."""
    return name.endswith("rotary_emb.inv_freq") or (tied and name == NAMES.head)
