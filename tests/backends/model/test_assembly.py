"""Weights from named tensors: all of them are checked before any is read, and one layer at a time is in memory."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from backends.kernels.reference import ReferenceKernels
from backends.model.assembly import assemble, expected_shapes
from backends.model.config import LlamaConfig, ModelRefusedError
from backends.model.hf_weights import NAMES
from backends.model.llama import Llama
from tests.backends.tensor_builders import TINY

FULL = replace(TINY, qkv_bias=True, output_bias=True, head_norms=True)


class CountedTensors:
    """Tensors of ones that are made when they are read, and the names in the order of reading."""

    def __init__(self, config: LlamaConfig, *, tied: bool = False) -> None:
        self.shapes: dict[str, tuple[int, ...]] = expected_shapes(config, NAMES, tied=tied)
        self.names_read: list[str] = []
        self.made: list[weakref.ref[torch.Tensor]] = []

    def place(self, name: str, /) -> str:
        return "memory"

    def read(self, name: str) -> torch.Tensor:
        self.names_read.append(name)
        tensor = torch.ones(self.shapes[name])
        self.made.append(weakref.ref(tensor))
        return tensor


def layers_named(names: list[str]) -> set[str]:
    return {name.split(".")[2] for name in names if ".layers." in name}


@pytest.mark.parametrize(
    ("config", "tied", "count"),
    [(TINY, False, 3 + 2 * 9), (TINY, True, 2 + 2 * 9), (FULL, False, 3 + 2 * 15)],
    ids=["plain", "tied", "every part"],
)
def test_a_model_has_these_many_tensors(config: LlamaConfig, tied: bool, count: int):
    """Nine in a layer; three biases of queries, keys and values, one of the output, two head norms."""
    shapes = expected_shapes(config, NAMES, tied=tied)
    assert len(shapes) == count
    assert not any("{" in name for name in shapes)
    assert shapes["model.layers.1.self_attn.k_proj.weight"] == (16, 48)
    assert (NAMES.head in shapes) is not tied


def test_every_tensor_is_read_once_in_a_pass_and_layer_by_layer():
    """A layer is read when it is reached; another pass reads it again."""
    stored = CountedTensors(FULL)
    weights = assemble(stored, FULL, NAMES, tied=False, rope_divisors=None)
    assert layers_named(stored.names_read) == set()
    layers = iter(weights.layers)
    next(layers)
    assert layers_named(stored.names_read) == {"0"}
    next(layers)
    assert next(layers, None) is None
    assert sorted(stored.names_read) == sorted(stored.shapes)
    assert len(list(weights.layers)) == FULL.layers


def test_what_was_read_is_let_go_once_it_is_stacked():
    """Never two copies of a model: of what a file gave nothing is alive when the model is."""
    stored = CountedTensors(TINY)
    model = Llama(TINY, assemble(stored, TINY, NAMES, tied=False, rope_divisors=None), ReferenceKernels())
    assert [name for name, tensor in zip(stored.names_read, stored.made, strict=True) if tensor() is not None] == []
    assert model.size_bytes == 4 * sum(torch.Size(shape).numel() for shape in stored.shapes.values())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model.norm.weight": None}, "memory: tensor 'model.norm.weight' is missing"),
        ({"model.layers.1.mlp.up_proj.weight": (64, 47)}, r"has shape \(64, 47\), expected \(64, 48\)"),
        ({"model.layers.2.mlp.up_proj.weight": (64, 48)}, "'model.layers.2.mlp.up_proj.weight' belongs to a part"),
        ({"model.layers.0.self_attn.q_norm.weight": (8,)}, "q_norm.weight' belongs to a part"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_anything_is_read(
    change: Mapping[str, tuple[int, ...] | None], named: str
):
    """Gigabytes would be read in vain."""
    stored = CountedTensors(TINY)
    for name, shape in change.items():
        if shape is None:
            del stored.shapes[name]
        else:
            stored.shapes[name] = shape
    with pytest.raises(ModelRefusedError, match=named):
        assemble(stored, TINY, NAMES, tied=False, rope_divisors=None)
    assert stored.names_read == []


def test_the_parts_of_a_layer_are_stacked_in_order():
    """Queries, keys, values; gate above up; biases alike."""
    stored = CountedTensors(FULL)
    plain_read = stored.read
    numbers = {"q_proj": 1.0, "k_proj": 2.0, "v_proj": 3.0, "gate_proj": 4.0, "up_proj": 5.0}
    stored.read = lambda name: plain_read(name) * numbers.get(name.split(".")[-2], 0.0)  # type: ignore[method-assign]
    layer = next(iter(assemble(stored, FULL, NAMES, tied=False, rope_divisors=None).layers))
    rows = [1.0] * 48 + [2.0] * 16 + [3.0] * 16
    assert layer.qkv[:, 0].tolist() == rows
    assert layer.qkv_bias is not None
    assert layer.qkv_bias.tolist() == rows
    assert layer.gate_up[:, 0].tolist() == [4.0] * 64 + [5.0] * 64
