"""Loads a Llama-family model from a GGUF file: reads each tensor once, dequantises it, fuses what is used together."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backends.model.config import LlamaConfig, ModelRefusedError, config_from_gguf
from backends.model.quantisation import encoding_of
from backends.model.weights import LayerWeights, LlamaWeights
from router.gguf import GgufFile, TensorInfo

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"
ROPE_DIVISORS = "rope_freqs.weight"


class LoadedWeights(NamedTuple):
    """A model's shape and its tensors."""

    config: LlamaConfig
    weights: LlamaWeights


def load_gguf(path: Path, dtype: torch.dtype) -> LoadedWeights:
    """The model in the GGUF file at `path`, its tensors as `dtype`.

    ModelRefusedError names an unknown architecture, quantisation or tensor; GgufError a file that is damaged.
    """
    with GgufFile.open(path) as file:
        infos = dict(file.tensors)
        config = config_from_gguf(file.metadata, _embedding_rows(infos))
    reader = _TensorReader(path, infos, dtype)
    weights = _weights(reader, config)
    reader.refuse_unread()
    return LoadedWeights(config, weights)


def unpermuted(weight: Tensor, heads: int) -> Tensor:
    """Query or key rows as Hugging Face orders them: each head's first halves, then its second halves.

    llama.cpp stores the rows of a head interleaved (first, second, first, …), for its kind of rotary embedding.
    """
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


class _TensorReader:
    """Reads tensors of one file by name, and remembers which were read."""

    def __init__(self, path: Path, infos: Mapping[str, TensorInfo], dtype: torch.dtype) -> None:
        self._path = path
        self._infos = infos
        self._dtype = dtype
        self._unread = set(infos)

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def read(self, name: str, *shape: int) -> Tensor:
        """Tensor `name`, which must have `shape`."""
        info = self._infos.get(name)
        if info is None:
            raise ModelRefusedError(f"{self._path}: tensor {name!r} is missing")
        if info.shape != shape:
            raise ModelRefusedError(f"{self._path}: tensor {name!r} has shape {info.shape}, expected {shape}")
        self._unread.discard(name)
        return torch.from_numpy(_floats(self._path, info)).view(shape).to(self._dtype)

    def refuse_unread(self) -> None:
        """ModelRefusedError when the file holds a tensor that nobody asked for: the answers would be wrong."""
        if self._unread:
            name = min(self._unread)
            raise ModelRefusedError(f"{self._path}: tensor {name!r} belongs to a part of the model not supported here")


def _embedding_rows(infos: Mapping[str, TensorInfo]) -> int:
    """The vocabulary's size; any number without an embedding, as reading it will then say that it is missing."""
    return infos[EMBEDDING].shape[0] if EMBEDDING in infos else 1


def _floats(path: Path, info: TensorInfo) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    encoding = encoding_of(info.ggml_type, info.name)
    raw = np.fromfile(path, np.uint8, encoding.size_bytes(prod(info.shape)), offset=info.offset_bytes)
    return encoding.decode(raw)


def _weights(reader: _TensorReader, config: LlamaConfig) -> LlamaWeights:
    embedding = reader.read(EMBEDDING, config.vocab_size, config.hidden_size)
    untied = HEAD in reader
    return LlamaWeights(
        embedding=embedding,
        layers=tuple(_layer(reader, config, f"blk.{index}.") for index in range(config.layers)),
        final_norm=reader.read("output_norm.weight", config.hidden_size),
        head=reader.read(HEAD, config.vocab_size, config.hidden_size) if untied else embedding,
        rope_divisors=reader.read(ROPE_DIVISORS, config.head_size // 2).float() if ROPE_DIVISORS in reader else None,
    )


def _layer(reader: _TensorReader, config: LlamaConfig, prefix: str) -> LayerWeights:
    hidden, mlp = config.hidden_size, config.intermediate_size
    query_size, kv_size = config.heads * config.head_size, config.kv_heads * config.head_size
    query = unpermuted(reader.read(prefix + "attn_q.weight", query_size, hidden), config.heads)
    key = unpermuted(reader.read(prefix + "attn_k.weight", kv_size, hidden), config.kv_heads)
    value = reader.read(prefix + "attn_v.weight", kv_size, hidden)
    gate, up = (reader.read(f"{prefix}ffn_{part}.weight", mlp, hidden) for part in ("gate", "up"))
    return LayerWeights(
        attention_norm=reader.read(prefix + "attn_norm.weight", hidden),
        qkv=torch.cat([query, key, value]),
        attention_output=reader.read(prefix + "attn_output.weight", hidden, query_size),
        mlp_norm=reader.read(prefix + "ffn_norm.weight", hidden),
        gate_up=torch.cat([gate, up]),
        down=reader.read(prefix + "ffn_down.weight", hidden, mlp),
    )
