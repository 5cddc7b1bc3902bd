"""Loading a model from a Hugging Face folder: what is fused, what is passed over, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from backends.model.config import ModelRefusedError
from backends.model.hf_weights import NAMES, load_folder
from tests.backends.folder_builders import SETTINGS, build_tensors, write_folder
from tests.backends.tensor_builders import TINY, build_weights

KEY = "model.layers.1.self_attn.k_proj.weight"


def write_parts(folder: Path, parts: dict[str, dict[str, torch.Tensor]]) -> None:
    """A config, several files, and the index of what lies where."""
    (folder / "config.json").write_text(json.dumps(SETTINGS))
    for file, tensors in parts.items():
        save_file(tensors, folder / file)
    index = {name: file for file, tensors in parts.items() for name in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def test_a_written_model_is_read_back_exactly(tmp_path: Path):
    """Matrices fused, nothing rounded."""
    loaded, want = load_folder(write_folder(tmp_path, build_tensors()), torch.float32), build_weights()
    assert loaded.config == TINY
    assert list(map(torch.equal, loaded.weights.outer_tensors(), want.outer_tensors())) == [True] * 3
    for got, layer in zip(loaded.weights.layers, want.layers, strict=True):
        assert all(map(torch.equal, got.tensors(), layer.tensors()))


def test_weights_are_turned_into_the_dtype_asked_for(tmp_path: Path):
    """Half precision in the file, float32 or bfloat16 in memory."""
    write_folder(tmp_path, build_tensors(torch.float16))
    for dtype in (torch.float32, torch.bfloat16):
        weights = load_folder(tmp_path, dtype).weights
        assert {tensor.dtype for layer in weights.layers for tensor in layer.tensors()} == {dtype}
        assert weights.embedding.dtype == weights.final_norm.dtype == weights.head.dtype == dtype


def test_weights_do_not_change_with_their_file(tmp_path: Path):
    """Files are mapped: what the model keeps is a copy."""
    write_folder(tmp_path, build_tensors())
    weights = load_folder(tmp_path, torch.float32).weights
    embedding, layer = weights.embedding.clone(), next(iter(weights.layers))
    down = layer.down.clone()
    with (tmp_path / "model.safetensors").open("r+b") as file:
        size = file.seek(0, 2)
        file.seek(size // 8)
        file.write(b"\xff" * (size // 2))
    assert torch.equal(weights.embedding, embedding)
    assert torch.equal(layer.down, down)


def test_what_nobody_uses_is_passed_over(tmp_path: Path):
    """Rotary tables of old checkpoints, and a head that is tied to the embedding."""
    tensors = build_tensors() | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    weights = load_folder(write_folder(tmp_path, tensors, tie_word_embeddings=True), torch.float32).weights
    assert weights.head is weights.embedding


@pytest.mark.parametrize("name", [NAMES.embedding, NAMES.head, KEY])
def test_a_missing_tensor_is_named_with_its_place(tmp_path: Path, name: str):
    """In a single file the folder is the place; the head is missed only where it is not tied."""
    tensors = build_tensors()
    del tensors[name]
    with pytest.raises(ModelRefusedError, match=f"{tmp_path.name}: tensor '{name}' is missing"):
        load_folder(write_folder(tmp_path, tensors), torch.float32)


def test_a_tensor_of_another_shape_is_named_with_its_file(tmp_path: Path):
    """The shape found and the shape expected are both said, before anything is read."""
    tensors = build_tensors() | {KEY: torch.ones(16, 47)}
    with pytest.raises(ModelRefusedError, match=rf"model\.safetensors: tensor '{KEY}' has shape \(16, 47\), expected"):
        load_folder(write_folder(tmp_path, tensors), torch.float32)


def test_a_tensor_of_an_unknown_part_is_refused(tmp_path: Path):
    """A bias that the config does not announce would change every answer."""
    tensors = build_tensors() | {"model.layers.0.self_attn.q_proj.bias": torch.ones(48)}
    with pytest.raises(ModelRefusedError, match=r"model\.safetensors: tensor .*q_proj.bias' belongs to a part"):
        load_folder(write_folder(tmp_path, tensors), torch.float32)


def test_a_quantised_tensor_is_refused_by_its_format(tmp_path: Path):
    """Even where the config says nothing of it."""
    tensors = build_tensors() | {KEY: torch.ones(16, 48, dtype=torch.int8)}
    with pytest.raises(ModelRefusedError, match=rf"tensor '{KEY}' is stored as I8.*only F32, F16, BF16"):
        load_folder(write_folder(tmp_path, tensors), torch.float32)


def test_a_folder_without_safetensors_says_what_is_read(tmp_path: Path):
    """Pickled weights are not."""
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(ModelRefusedError, match=r"model\.safetensors is missing: .*safetensors files only"):
        load_folder(tmp_path, torch.float32)


def test_a_damaged_file_is_named(tmp_path: Path):
    """A head that is no head."""
    path = write_folder(tmp_path, build_tensors()) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ModelRefusedError, match=r"model\.safetensors: no safetensors file that can be read"):
        load_folder(tmp_path, torch.float32)


def test_a_missing_part_of_a_model_in_parts_is_named(tmp_path: Path):
    """A file that the index promises, and a tensor that it promises in a file."""
    tensors = build_tensors()
    first = {KEY: tensors.pop(KEY)}
    write_parts(tmp_path, {"one.safetensors": first, "two.safetensors": tensors})
    assert load_folder(tmp_path, torch.float32).config == TINY
    save_file({"model.norm.weight": torch.ones(48)}, tmp_path / "one.safetensors")
    with pytest.raises(ModelRefusedError, match=rf"one\.safetensors: tensor '{KEY}' is missing"):
        load_folder(tmp_path, torch.float32)
    (tmp_path / "one.safetensors").unlink()
    with pytest.raises(ModelRefusedError, match=r"one\.safetensors is missing"):
        load_folder(tmp_path, torch.float32)


@pytest.mark.parametrize("text", ["{", "{}", '{"weight_map": 3}', "[]"])
def test_a_damaged_index_is_named(tmp_path: Path, text: str):
    """The file, and what belongs into it."""
    write_parts(tmp_path, {"one.safetensors": build_tensors()})
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ModelRefusedError, match=r"index\.json: no JSON object with a weight_map"):
        load_folder(tmp_path, torch.float32)
