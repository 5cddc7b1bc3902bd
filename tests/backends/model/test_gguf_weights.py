"""Loading a model from a GGUF file: order of rows, tied embeddings, fused matrices, and what is refused."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.kernels.reference import ReferenceKernels
from backends.model.config import ModelRefusedError
from backends.model.gguf_weights import load_gguf, unpermuted
from backends.model.llama import Llama
from backends.model.weights import LlamaWeights
from router.gguf import GgufError
from tests.backends.tensor_builders import TINY, RawTensor, build_weights, write_model_gguf

STRING, U32, F32 = 8, 4, 6


def permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """What llama.cpp's converter does to query and key rows."""
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


def all_tensors(weights: LlamaWeights) -> list[torch.Tensor]:
    """Every tensor, a tied one once."""
    return [*weights.outer_tensors(), *(tensor for layer in weights.layers for tensor in layer.tensors())]


def raw(tensor: torch.Tensor) -> RawTensor:
    """A float32 tensor as a GGUF tensor."""
    return tuple(tensor.shape), 0, struct.pack(f"<{tensor.numel()}f", *tensor.flatten().tolist())


def build_tensors(weights: LlamaWeights, *, tied: bool = False) -> dict[str, RawTensor]:
    """`weights` as the tensors of a GGUF file."""
    tensors = {"token_embd.weight": weights.embedding, "output_norm.weight": weights.final_norm}
    if not tied:
        tensors["output.weight"] = weights.head
    sizes = [heads * TINY.head_size for heads in (TINY.heads, TINY.kv_heads, TINY.kv_heads)]
    for index, layer in enumerate(weights.layers):
        query, key, value = layer.qkv.split(sizes)
        gate, up = layer.gate_up.chunk(2)
        parts = {
            "attn_norm": layer.attention_norm, "attn_q": permuted(query, TINY.heads),
            "attn_k": permuted(key, TINY.kv_heads), "attn_v": value, "attn_output": layer.attention_output,
            "ffn_norm": layer.mlp_norm, "ffn_gate": gate, "ffn_up": up, "ffn_down": layer.down,
        }  # fmt: skip
        tensors |= {f"blk.{index}.{name}.weight": part for name, part in parts.items()}
    return {name: raw(tensor) for name, tensor in tensors.items()}


def build_pairs() -> dict[str, tuple[int, Any]]:
    """TINY as GGUF metadata."""
    return {
        "general.architecture": (STRING, "llama"),
        "llama.block_count": (U32, TINY.layers),
        "llama.context_length": (U32, TINY.context_tokens),
        "llama.embedding_length": (U32, TINY.hidden_size),
        "llama.feed_forward_length": (U32, TINY.intermediate_size),
        "llama.attention.head_count": (U32, TINY.heads),
        "llama.attention.head_count_kv": (U32, TINY.kv_heads),
        "llama.attention.layer_norm_rms_epsilon": (F32, TINY.norm_epsilon),
        "llama.rope.freq_base": (F32, TINY.rope_base),
    }


def test_a_written_model_is_read_back_exactly(tmp_path: Path):
    """Query and key rows in Hugging Face's order again, matrices fused, a head of its own."""
    weights = build_weights()
    loaded = load_gguf(write_model_gguf(tmp_path / "m.gguf", build_pairs(), build_tensors(weights)), torch.float32)
    assert replace(loaded.config, norm_epsilon=TINY.norm_epsilon) == TINY
    for got, want in zip(all_tensors(loaded.weights), all_tensors(weights), strict=True):
        assert torch.equal(got, want)


def test_without_an_output_matrix_the_embedding_is_the_head(tmp_path: Path):
    """Tied embeddings are one tensor, counted once."""
    weights = build_weights()
    path = write_model_gguf(tmp_path / "m.gguf", build_pairs(), build_tensors(weights, tied=True))
    tied = load_gguf(path, torch.bfloat16).weights
    assert tied.head is tied.embedding
    assert tied.head.dtype == torch.bfloat16
    whole, saved = Llama(TINY, weights, ReferenceKernels()), weights.head.numel() * 4
    assert Llama(TINY, tied, ReferenceKernels()).size_bytes == (whole.size_bytes - saved) // 2


def test_rope_divisors_are_kept_in_float32(tmp_path: Path):
    """Llama 3's frequency scaling comes as a tensor of its own."""
    tensors = build_tensors(build_weights()) | {"rope_freqs.weight": raw(torch.tensor([1.0, 2.0, 4.0, 8.0]))}
    weights = load_gguf(write_model_gguf(tmp_path / "m.gguf", build_pairs(), tensors), torch.bfloat16).weights
    assert weights.rope_divisors is not None
    assert weights.rope_divisors.dtype == torch.float32
    assert weights.rope_divisors.tolist() == [1.0, 2.0, 4.0, 8.0]


def test_unpermuting_undoes_the_converter():
    """Rows 0, 1, 2, … of each head, for any number of heads."""
    weight = torch.arange(24.0).view(12, 2)
    for heads in (1, 2, 3, 6):
        assert torch.equal(unpermuted(permuted(weight, heads), heads), weight)


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.1.attn_k.weight", "output_norm.weight"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str):
    """A file without one of the model's tensors is refused."""
    tensors = build_tensors(build_weights())
    del tensors[name]
    with pytest.raises(ModelRefusedError, match=f"{name}' is missing"):
        load_gguf(write_model_gguf(tmp_path / "m.gguf", build_pairs(), tensors), torch.float32)


def test_a_tensor_of_an_unknown_part_is_refused(tmp_path: Path):
    """A bias that would be ignored would change every answer."""
    tensors = build_tensors(build_weights()) | {"blk.0.attn_q.bias": raw(torch.ones(48))}
    with pytest.raises(ModelRefusedError, match=r"blk.0.attn_q.bias' belongs to a part"):
        load_gguf(write_model_gguf(tmp_path / "m.gguf", build_pairs(), tensors), torch.float32)


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path):
    """The shape found and the shape expected are both said."""
    tensors = build_tensors(build_weights()) | {"blk.0.ffn_down.weight": raw(torch.ones(48, 32))}
    with pytest.raises(ModelRefusedError, match=r"shape \(48, 32\), expected \(48, 64\)"):
        load_gguf(write_model_gguf(tmp_path / "m.gguf", build_pairs(), tensors), torch.float32)


def test_an_unknown_quantisation_is_refused_by_name(tmp_path: Path):
    """Q3_K is known to exist, and not read here."""
    shape = (TINY.hidden_size, TINY.heads * TINY.head_size)
    tensors = build_tensors(build_weights()) | {"blk.0.attn_output.weight": (shape, 11, b"\0" * 990)}
    with pytest.raises(ModelRefusedError, match=r"attn_output.weight' is quantised as Q3_K"):
        load_gguf(write_model_gguf(tmp_path / "m.gguf", build_pairs(), tensors), torch.float32)


def test_another_architecture_is_refused_before_its_tensors(tmp_path: Path):
    """The architecture is named, not the first tensor that happens to be missing."""
    pairs = build_pairs() | {"general.architecture": (STRING, "rwkv6")}
    with pytest.raises(ModelRefusedError, match="architecture 'rwkv6'"):
        load_gguf(write_model_gguf(tmp_path / "m.gguf", pairs, {}), torch.float32)


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path):
    """Any other file."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"x" * 100)
    with pytest.raises(GgufError, match="not a GGUF file"):
        load_gguf(path, torch.float32)
