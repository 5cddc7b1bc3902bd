"""The shape of a Llama-family model, whichever file described it."""

from __future__ import annotations

from dataclasses import dataclass


class ModelRefusedError(ValueError):
    """This model cannot be run here; the message names the part that is unknown."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes of a model. `context_tokens` is the longest sequence it was trained for; other sizes count elements.

    `head_norms` says that each query and key head is normed before it is rotated (Qwen3). `window_tokens` is how far
    back a token sees; only sequences that are no longer are computed right here. None: it sees everything.
    """

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
    qkv_bias: bool = False
    output_bias: bool = False
    head_norms: bool = False
    window_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise ModelRefusedError(f"{self.heads} attention heads cannot share {self.kv_heads} key-value heads evenly")
        if self.head_size % 2:
            raise ModelRefusedError(f"a head size of {self.head_size} is odd, so rotary positions cannot pair it up")

    @property
    def query_size(self) -> int:
        """Elements per token of all query heads."""
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements per token of all key heads, or of all value heads."""
        return self.kv_heads * self.head_size

    @property
    def qkv_size(self) -> int:
        """Elements per token of queries, keys and values together."""
        return self.query_size + 2 * self.kv_size
