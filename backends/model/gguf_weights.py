"""Loads a Llama-family model from a GGUF file: each tensor is read when it is needed, and dequantised."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from backends.model.assembly import LoadedWeights, TensorNames, assemble
from backends.model.config import ModelRefusedError
from backends.model.gguf_config import config_from_gguf
from backends.model.quantisation import encoding_of
from router.gguf import GgufFile, TensorInfo

NAMES = TensorNames(
    embedding="token_embd.weight",
    final_norm="output_norm.weight",
    head="output.weight",
    attention_norm="blk.{}.attn_norm",
    query="blk.{}.attn_q",
    key="blk.{}.attn_k",
    value="blk.{}.attn_v",
    attention_output="blk.{}.attn_output",
    query_norm="blk.{}.attn_q_norm",
    key_norm="blk.{}.attn_k_norm",
    mlp_norm="blk.{}.ffn_norm",
    gate="blk.{}.ffn_gate",
    up="blk.{}.ffn_up",
    down="blk.{}.ffn_down",
)
ROPE_DIVISORS = "rope_freqs.weight"


def load_gguf(path: Path, dtype: torch.dtype, device: str = "cpu") -> LoadedWeights:
    """The model in the GGUF file at `path`, its tensors as `dtype` on `device`.

    ModelRefusedError names an unknown architecture, quantisation or tensor; GgufError a file that is damaged.
    """
    with GgufFile.open(path) as file:
        infos = dict(file.tensors)
        architecture = file.metadata.get("general.architecture")
        config = config_from_gguf(file.metadata, _embedding_rows(infos))
    divisors = infos.pop(ROPE_DIVISORS, None)
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads} if architecture == "llama" else {}
    stored = _GgufTensors(path, infos, dtype, torch.device(device), heads)
    rope_divisors = torch.from_numpy(_floats(path, divisors)) if divisors is not None else None
    if rope_divisors is not None and len(rope_divisors) != config.head_size // 2:
        raise ModelRefusedError(f"{path}: tensor {ROPE_DIVISORS!r} has not one number for each pair of a head")
    tied = NAMES.head not in infos
    return LoadedWeights(config, assemble(stored, config, NAMES, tied=tied, rope_divisors=rope_divisors))


def unpermuted(weight: Tensor, heads: int) -> Tensor:
    """Query or key rows as Hugging Face orders them: each head's first halves, then its second halves.

    llama.cpp stores the rows of a head interleaved (first, second, first, …), for its kind of rotary embedding.
    """
    rows = weight.shape[0]
    return weight.view(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


class _GgufTensors:
    """`StoredTensors` of one GGUF file. `interleaved` says which parts have interleaved rows, of how many heads."""

    def __init__(
        self,
        path: Path,
        infos: Mapping[str, TensorInfo],
        dtype: torch.dtype,
        device: torch.device,
        interleaved: Mapping[str, int],
    ) -> None:
        for info in infos.values():
            encoding_of(info.ggml_type, info.name)
        self.shapes = {name: info.shape for name, info in infos.items()}
        self._path = path
        self._infos = infos
        self._dtype = dtype
        self._device = device
        self._interleaved = interleaved

    def place(self, _name: str, /) -> str:
        """There is one file."""
        return str(self._path)

    def read(self, name: str) -> Tensor:
        """The tensor, its rows as Hugging Face orders them."""
        info = self._infos[name]
        tensor = torch.from_numpy(_floats(self._path, info)).view(info.shape).to(self._device, self._dtype)
        heads = self._interleaved.get(name.split(".")[-2])
        return tensor if heads is None else unpermuted(tensor, heads)


def _embedding_rows(infos: Mapping[str, TensorInfo]) -> int:
    """The vocabulary's size; any number without an embedding, as the check will then say that it is missing."""
    return infos[NAMES.embedding].shape[0] if NAMES.embedding in infos else 1


def _floats(path: Path, info: TensorInfo) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    encoding = encoding_of(info.ggml_type, info.name)
    raw = np.fromfile(path, np.uint8, encoding.size_bytes(prod(info.shape)), offset=info.offset_bytes)
    return encoding.decode(raw)
