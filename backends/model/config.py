"""The shape of a Llama-family model, read from a GGUF file's metadata; what cannot be computed is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ARCHITECTURES = frozenset({"llama"})
"""Values of `general.architecture` that `backends.model.llama` computes."""


class ModelRefusedError(ValueError):
    """This model cannot be run here; the message names the part that is unknown."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes of a model. `context_tokens` is the longest sequence it was trained for; the rest are element counts."""

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocab_size: int
    context_tokens: int
    rope_base: float
    norm_epsilon: float

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ModelRefusedError(f"{self.heads} attention heads cannot share {self.kv_heads} key-value heads evenly")
        if self.head_size % 2:
            raise ModelRefusedError(f"a head size of {self.head_size} is odd, so rotary positions cannot pair it up")

    @property
    def qkv_size(self) -> int:
        """Elements per token of queries, keys and values together."""
        return (self.heads + 2 * self.kv_heads) * self.head_size


def config_from_gguf(metadata: Mapping[str, Any], vocab_size: int) -> LlamaConfig:
    """The configuration in `metadata`; `vocab_size` is the embedding's row count. ModelRefusedError by name."""
    architecture = metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelRefusedError(f"architecture {architecture!r} is not supported here (supported: {known})")
    fields = _Fields(metadata, str(architecture))
    _refuse_variants(fields)
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
    )


class _Fields:
    """The metadata of one architecture, read with a clear error where something is missing or of a wrong type."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture

    def get(self, name: str, default: Any = None) -> Any:
        """The value under `<architecture>.<name>`."""
        return self._metadata.get(f"{self._prefix}.{name}", default)

    def integer(self, name: str, default: int | None = None) -> int:
        """A positive count."""
        value = self.get(name, default)
        if not isinstance(value, int) or value < 1:
            raise ModelRefusedError(f"{self._prefix}.{name} is {value!r} in the GGUF metadata, a count was expected")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or not value > 0:
            raise ModelRefusedError(f"{self._prefix}.{name} is {value!r} in the GGUF metadata, a number was expected")
        return float(value)


def _refuse_variants(fields: _Fields) -> None:
    """Members of the family with parts that are not computed here would give wrong answers silently."""
    if fields.get("expert_count", 0):
        raise ModelRefusedError("a mixture of experts (llama.expert_count) is not supported here")
    scaling = fields.get("rope.scaling.type", "none")
    if scaling != "none":
        raise ModelRefusedError(f"rope scaling {scaling!r} (llama.rope.scaling.type) is not supported here")
    if fields.get("attention.sliding_window", 0):
        raise ModelRefusedError("sliding-window attention (llama.attention.sliding_window) is not supported here")


def _refuse_other_head_sizes(fields: _Fields, head_size: int) -> None:
    """Values as long as keys, and all of a head rotated: the only shape that is computed here."""
    for name in ("attention.value_length", "rope.dimension_count"):
        value = fields.get(name, head_size)
        if value != head_size:
            raise ModelRefusedError(f"llama.{name} {value!r} differs from the head size {head_size}: not supported")
