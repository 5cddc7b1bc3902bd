"""Tiny models in Hugging Face folders, written without its library: config.json, weights, and a tokeniser of bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from backends.model.hf_weights import NAMES
from tests.backends.tensor_builders import TINY, build_weights

SETTINGS: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": TINY.layers,
    "hidden_size": TINY.hidden_size,
    "intermediate_size": TINY.intermediate_size,
    "num_attention_heads": TINY.heads,
    "num_key_value_heads": TINY.kv_heads,
    "vocab_size": TINY.vocab_size,
    "max_position_embeddings": TINY.context_tokens,
    "rms_norm_eps": TINY.norm_epsilon,
}
END = "<|end|>"


def build_tensors(dtype: torch.dtype = torch.float32, vocab_size: int = TINY.vocab_size) -> dict[str, torch.Tensor]:
    """Random weights of TINY under Hugging Face's names."""
    weights = build_weights(replace(TINY, vocab_size=vocab_size), dtype)
    tensors = {NAMES.embedding: weights.embedding, NAMES.final_norm: weights.final_norm, NAMES.head: weights.head}
    for index, layer in enumerate(weights.layers):
        query, key, value = layer.qkv.split([TINY.query_size, TINY.kv_size, TINY.kv_size])
        gate, up = layer.gate_up.chunk(2)
        parts = {
            NAMES.query: query, NAMES.key: key, NAMES.value: value, NAMES.attention_output: layer.attention_output,
            NAMES.attention_norm: layer.attention_norm, NAMES.mlp_norm: layer.mlp_norm,
            NAMES.gate: gate, NAMES.up: up, NAMES.down: layer.down,
        }  # fmt: skip
        tensors |= {f"{name.format(index)}.weight": part.contiguous() for name, part in parts.items()}
    return tensors


def write_folder(folder: Path, tensors: dict[str, torch.Tensor], **settings: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(SETTINGS | settings))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_text_files(folder: Path, **generation: Any) -> None:
    """A tokeniser that knows bytes and END, a chat template, and `generation` as generation_config.json."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))
    (folder / "chat_template.jinja").write_text("{% for message in messages %}[{{ message.content }}]{% endfor %}")
    (folder / "generation_config.json").write_text(json.dumps(generation))
