"""A model's shape read from a Hugging Face config.json; what cannot be computed is refused by name.

Both spellings of the rotary settings are read: `rope_theta` and `rope_scaling` of transformers 4, `rope_parameters`
of transformers 5. What a file leaves out has transformers' default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backends.model.config import LlamaConfig, ModelRefusedError
from backends.model.fields import Fields
from backends.model.rope import Llama3Scaling


class _Family(NamedTuple):
    """How one architecture differs from Llama."""

    bias_on_request: bool = False
    """`attention_bias` puts a bias on queries, keys, values and the attention's output."""
    qkv_bias: bool = False
    head_norms: bool = False
    head_size: int | None = None
    """When the file names none; None: the hidden size shared out over the heads."""
    windowed: bool = False
    """Whether `sliding_window` holds without `use_sliding_window`."""


ARCHITECTURES: Mapping[str, _Family] = {
    "LlamaForCausalLM": _Family(bias_on_request=True),
    "MistralForCausalLM": _Family(windowed=True),
    "Qwen2ForCausalLM": _Family(qkv_bias=True),
    "Qwen3ForCausalLM": _Family(bias_on_request=True, head_norms=True, head_size=128),
}
"""Values of `architectures` that `backends.model.llama` computes."""

DEFAULT_WINDOW_TOKENS = 4096
FULL_ATTENTION, WINDOWED_ATTENTION = "full_attention", "sliding_attention"


class FolderConfig(NamedTuple):
    """A model's shape, whether its head is the embedding, and how its rotary positions are stretched."""

    shape: LlamaConfig
    tied: bool
    scaling: Llama3Scaling | None


def read_config(path: Path) -> FolderConfig:
    """The configuration in the config.json at `path`; ModelRefusedError names what is not supported."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelRefusedError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelRefusedError(f"{path}: a JSON object was expected")
    return config_from_json(values, str(path))


def config_from_json(values: Mapping[str, Any], place: str) -> FolderConfig:
    """The configuration in the object of a config.json; `place` names the file in errors."""
    fields = Fields(values, place)
    family = _family(fields)
    _refuse_variants(fields)
    heads, hidden_size = fields.integer("num_attention_heads"), fields.integer("hidden_size")
    layers = fields.integer("num_hidden_layers")
    bias = family.bias_on_request and bool(fields.get("attention_bias"))
    rope = _rope(fields, place)
    shape = LlamaConfig(
        layers=layers,
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        heads=heads,
        kv_heads=fields.integer("num_key_value_heads", heads),
        head_size=fields.integer("head_dim", family.head_size or hidden_size // heads),
        vocab_size=fields.integer("vocab_size"),
        context_tokens=fields.integer("max_position_embeddings"),
        rope_base=rope.number("rope_theta", fields.number("rope_theta", 10_000.0)),
        norm_epsilon=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=family.qkv_bias or bias,
        output_bias=bias,
        head_norms=family.head_norms,
        window_tokens=_window_tokens(fields, family, layers),
    )
    return FolderConfig(shape, bool(fields.get("tie_word_embeddings")), _scaling(rope, shape))


def _family(fields: Fields) -> _Family:
    names = fields.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    if not isinstance(name, str) or name not in ARCHITECTURES:
        raise fields.refused("architectures", f"not supported here (supported: {', '.join(ARCHITECTURES)})")
    return ARCHITECTURES[name]


def _refuse_variants(fields: Fields) -> None:
    """Parts that are not computed here would give wrong answers silently."""
    for name in ("quantization_config", "compression_config"):
        if fields.get(name) is not None:
            raise fields.refused(name, "quantised weights are not read from a folder here, only from a GGUF file")
    for name in ("num_local_experts", "num_experts"):
        if fields.get(name):
            raise fields.refused(name, "a mixture of experts is not supported here")
    if fields.get("hidden_act", "silu") != "silu":
        raise fields.refused("hidden_act", "only silu is computed here")
    if fields.get("mlp_bias"):
        raise fields.refused("mlp_bias", "a bias in the MLP is not supported here")


def _window_tokens(fields: Fields, family: _Family, layers: int) -> int | None:
    """How far back the layer that sees least sees."""
    kinds = set(fields.get("layer_types", [WINDOWED_ATTENTION]))
    if kinds - {FULL_ATTENTION, WINDOWED_ATTENTION}:
        raise fields.refused("layer_types", f"only {FULL_ATTENTION} and {WINDOWED_ATTENTION} are known here")
    in_use = fields.get("use_sliding_window", family.windowed) and WINDOWED_ATTENTION in kinds
    if not in_use or fields.get("max_window_layers", 0) >= layers or fields.is_null("sliding_window"):
        return None
    return fields.integer("sliding_window", DEFAULT_WINDOW_TOKENS)


def _rope(fields: Fields, place: str) -> Fields:
    """The rotary settings, whichever version of transformers wrote them."""
    name = "rope_parameters" if fields.get("rope_parameters") is not None else "rope_scaling"
    values = fields.get(name, {})
    if not isinstance(values, dict) or any(isinstance(value, dict) for value in values.values()):
        raise fields.refused(name, "one set of settings for all layers was expected")
    rope = Fields(values, f"{name} of {place}")
    for holder in (rope, fields):
        if holder.get("partial_rotary_factor", 1.0) != 1.0:
            raise holder.refused("partial_rotary_factor", "heads that are rotated in part are not supported here")
    return rope


def _scaling(rope: Fields, shape: LlamaConfig) -> Llama3Scaling | None:
    name = "rope_type" if rope.get("rope_type") is not None else "type"
    kind = rope.get(name, "default")
    if kind == "default":
        return None
    if kind != "llama3":
        raise rope.refused(name, "this rope scaling is not supported here (supported: default, llama3)")
    return Llama3Scaling(
        factor=rope.number("factor"),
        low_frequency_factor=rope.number("low_freq_factor"),
        high_frequency_factor=rope.number("high_freq_factor"),
        original_context_tokens=rope.integer("original_max_position_embeddings", shape.context_tokens),
    )
