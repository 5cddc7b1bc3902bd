"""From a file's named tensors to a model's weights: checks them all, then fuses them layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from backends.model.config import LlamaConfig, ModelRefusedError
from backends.model.weights import LayerWeights, LlamaWeights


class StoredTensors(Protocol):
    """The tensors in a model's files."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Every tensor's shape, without reading it."""

    def place(self, name: str, /) -> str:
        """The file that holds the tensor, or should."""

    def read(self, name: str) -> Tensor:
        """The tensor in the dtype and on the device asked for; it may be a view into the file."""


class TensorNames(NamedTuple):
    """What a format calls the tensors. A layer's parts are named without `.weight` or `.bias`, {} is its number."""

    embedding: str
    final_norm: str
    head: str
    attention_norm: str
    query: str
    key: str
    value: str
    attention_output: str
    query_norm: str
    key_norm: str
    mlp_norm: str
    gate: str
    up: str
    down: str


class LoadedWeights(NamedTuple):
    """A model's shape and its tensors."""

    config: LlamaConfig
    weights: LlamaWeights


def assemble(
    stored: StoredTensors, config: LlamaConfig, names: TensorNames, *, tied: bool, rope_divisors: Tensor | None
) -> LlamaWeights:
    """The model's weights; its layers are read when they are asked for.

    ModelRefusedError, before anything is read, for a tensor that is missing, of another shape, or of no known part.
    """
    _check(stored, expected_shapes(config, names, tied=tied))
    embedding = _copy(stored.read(names.embedding))
    return LlamaWeights(
        embedding=embedding,
        layers=_Layers(stored, config, names),
        final_norm=_copy(stored.read(names.final_norm)),
        head=embedding if tied else _copy(stored.read(names.head)),
        rope_divisors=rope_divisors,
    )


def expected_shapes(config: LlamaConfig, names: TensorNames, *, tied: bool) -> dict[str, tuple[int, ...]]:
    """Every tensor that a model of this shape has, by name."""
    table = (config.vocab_size, config.hidden_size)
    shapes: dict[str, tuple[int, ...]] = {names.embedding: table, names.final_norm: (config.hidden_size,)}
    if not tied:
        shapes[names.head] = table
    parts = _layer_shapes(config, names)
    return shapes | {name.format(index): shape for index in range(config.layers) for name, shape in parts.items()}


def _layer_shapes(config: LlamaConfig, names: TensorNames) -> dict[str, tuple[int, ...]]:
    hidden, mlp = config.hidden_size, config.intermediate_size
    outputs = {names.query: config.query_size, names.key: config.kv_size, names.value: config.kv_size}
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (rows, hidden) for name, rows in outputs.items()}
    shapes |= {f"{name}.weight": (hidden,) for name in (names.attention_norm, names.mlp_norm)}
    shapes |= {f"{name}.weight": (mlp, hidden) for name in (names.gate, names.up)}
    shapes |= {f"{names.attention_output}.weight": (hidden, config.query_size), f"{names.down}.weight": (hidden, mlp)}
    if config.qkv_bias:
        shapes |= {f"{name}.bias": (rows,) for name, rows in outputs.items()}
    if config.output_bias:
        shapes[f"{names.attention_output}.bias"] = (hidden,)
    if config.head_norms:
        shapes |= {f"{name}.weight": (config.head_size,) for name in (names.query_norm, names.key_norm)}
    return shapes


def _check(stored: StoredTensors, expected: Mapping[str, tuple[int, ...]]) -> None:
    shapes = stored.shapes
    for name, shape in expected.items():
        if name not in shapes:
            raise ModelRefusedError(f"{stored.place(name)}: tensor {name!r} is missing")
        if shapes[name] != shape:
            found = f"has shape {shapes[name]}, expected {shape}"
            raise ModelRefusedError(f"{stored.place(name)}: tensor {name!r} {found}")
    unknown = min(shapes.keys() - expected.keys(), default=None)
    if unknown is not None:
        belongs = "belongs to a part of the model not supported here"
        raise ModelRefusedError(f"{stored.place(unknown)}: tensor {unknown!r} {belongs}")


class _Layers:
    """Reads one layer after the other, in every pass anew."""

    def __init__(self, stored: StoredTensors, config: LlamaConfig, names: TensorNames) -> None:
        self._stored = stored
        self._config = config
        self._names = names

    def __iter__(self) -> Iterator[LayerWeights]:
        return map(self._layer, range(self._config.layers))

    def _layer(self, index: int) -> LayerWeights:
        config = self._config
        names = TensorNames(*(name.format(index) for name in self._names))
        qkv = (names.query, names.key, names.value)
        return LayerWeights(
            attention_norm=self._stacked("weight", names.attention_norm),
            qkv=self._stacked("weight", *qkv),
            attention_output=self._stacked("weight", names.attention_output),
            mlp_norm=self._stacked("weight", names.mlp_norm),
            gate_up=self._stacked("weight", names.gate, names.up),
            down=self._stacked("weight", names.down),
            qkv_bias=self._stacked("bias", *qkv) if config.qkv_bias else None,
            attention_output_bias=self._stacked("bias", names.attention_output) if config.output_bias else None,
            query_norm=self._stacked("weight", names.query_norm) if config.head_norms else None,
            key_norm=self._stacked("weight", names.key_norm) if config.head_norms else None,
        )

    def _stacked(self, kind: str, *names: str) -> Tensor:
        return _copy(*(self._stored.read(f"{name}.{kind}") for name in names))


def _copy(*parts: Tensor) -> Tensor:
    """The parts one above the other, in memory of their own: a view into a file would change with the file."""
    return torch.cat(parts)
