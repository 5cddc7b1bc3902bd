"""The tiny checkpoints as GGUF files, written with ggml's own Python package as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.constants import MODEL_ARCH

from tests.backends.model.checkpoints import Checkpoint

ARCHITECTURES = {
    "llama": MODEL_ARCH.LLAMA, "mistral": MODEL_ARCH.LLAMA, "qwen2": MODEL_ARCH.QWEN2, "qwen3": MODEL_ARCH.QWEN3,
}  # fmt: skip
F32 = gguf.GGMLQuantizationType.F32


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """What the converter does to a Llama's query and key rows: each head's halves interleaved."""
    split = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def write_gguf(path: Path, checkpoint: Checkpoint, kind: gguf.GGMLQuantizationType = F32) -> Path:
    """`checkpoint` in one GGUF file, its matrices of `kind`."""
    config = checkpoint.model.config
    architecture = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    write_sizes(writer, config)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, parameter in checkpoint.model.named_parameters():
        rows = parameter.detach().numpy()
        part = name.split(".")[-2]
        if architecture == MODEL_ARCH.LLAMA and part in heads:
            rows = permuted(rows, heads[part])
        matrix = kind if rows.ndim == 2 else F32
        written = names.get_name(name, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(written, gguf.quantize(np.ascontiguousarray(rows), matrix), raw_dtype=matrix)
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_divisors(checkpoint.model))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def rope_divisors(model: Any) -> np.ndarray:
    """How much slower than plain ones transformers' scaled frequencies are."""
    scaled = model.model.rotary_emb.inv_freq
    exponents = torch.arange(0, 2 * len(scaled), 2) / (2 * len(scaled))
    return (model.config.rope_parameters["rope_theta"] ** -exponents / scaled).numpy()
