"""A model's shape read from a GGUF file's metadata; what cannot be computed is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.model.config import LlamaConfig, ModelRefusedError
from backends.model.fields import Fields

ARCHITECTURES = frozenset({"llama", "qwen2", "qwen3"})
"""Values of `general.architecture` that `backends.model.llama` computes; Mistral's files say llama."""

WINDOW = "attention.sliding_window"
SCALES = ("attention.scale", "logit_scale", "residual_scale", "embedding_scale")
"""Factors that some relatives of the family multiply with."""

UNNAMED_STRETCHES = ("rope.scaling.factor", "rope.scale_linear")
"""By these positions are divided where no `rope.scaling.type` is named, in llama.cpp."""


def config_from_gguf(metadata: Mapping[str, Any], vocab_size: int) -> LlamaConfig:
    """The configuration in `metadata`; `vocab_size` is the embedding's row count. ModelRefusedError by name."""
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelRefusedError(f"architecture {architecture!r} is not supported here (supported: {known})")
    fields = Fields(metadata, "the GGUF metadata", f"{architecture}.")
    _refuse_variants(metadata, fields)
    heads, hidden_size = fields.integer("attention.head_count"), fields.integer("embedding_length")
    head_size = fields.integer("attention.key_length", hidden_size // heads)
    _refuse_other_head_sizes(fields, head_size)
    return LlamaConfig(
        layers=fields.integer("block_count"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("feed_forward_length"),
        heads=heads,
        kv_heads=fields.integer("attention.head_count_kv", heads),
        head_size=head_size,
        vocab_size=vocab_size,
        context_tokens=fields.integer("context_length"),
        rope_base=fields.number("rope.freq_base", 10_000.0),
        norm_epsilon=fields.number("attention.layer_norm_rms_epsilon"),
        qkv_bias=architecture == "qwen2",
        head_norms=architecture == "qwen3",
        window_tokens=fields.integer(WINDOW) if fields.get(WINDOW) else None,
    )


def _refuse_variants(metadata: Mapping[str, Any], fields: Fields) -> None:
    """Members of the family with parts that are not computed here would give wrong answers silently."""
    if fields.get("expert_count", 0):
        raise fields.refused("expert_count", "a mixture of experts is not supported here")
    if fields.get("rope.scaling.type", "none") != "none":
        raise fields.refused("rope.scaling.type", "this rope scaling is not supported here")
    for name in UNNAMED_STRETCHES:
        if fields.get("rope.scaling.type") is None and fields.get(name, 1) not in (0, 1):
            raise fields.refused(name, "stretched rotary positions are not supported here")
    for name in SCALES:
        if fields.get(name) is not None:
            raise fields.refused(name, "this scaling is not supported here")
    parts = metadata.get("split.count", 1)
    if parts > 1:
        raise ModelRefusedError(f"the GGUF file is one of {parts} parts: join them (llama-gguf-split --merge)")


def _refuse_other_head_sizes(fields: Fields, head_size: int) -> None:
    """Values as long as keys, and all of a head rotated: the only shape that is computed here."""
    for name in ("attention.value_length", "rope.dimension_count"):
        if fields.get(name, head_size) != head_size:
            raise fields.refused(name, f"another length than the head size {head_size} is not supported here")
