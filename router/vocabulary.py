"""Builds a `tokenizers` BPE from the vocabulary inside a GGUF file.

A GGUF file names its pre-tokeniser (`tokenizer.ggml.pre`) instead of carrying it; the names known here are those
whose splitting is known to equal the original's. Any other is refused by name: a guess would misplace quietly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

_CONTROL, _USER_DEFINED = 3, 4
"""Values of `tokenizer.ggml.token_type` whose tokens are found in the text before it is split."""

_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


class TokeniserError(ValueError):
    """A tokeniser that cannot be had from these files; the message says why, and names the file or the field."""


def _gpt2(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm(tokenizer: Tokenizer) -> None:
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])


def _qwen2(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.NFC()
    _split_by(tokenizer, _QWEN2)


def _llama3(tokenizer: Tokenizer) -> None:
    _split_by(tokenizer, _LLAMA3)


def _split_by(tokenizer: Tokenizer, pattern: str) -> None:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])


PRE_TOKENISERS: Mapping[str, Callable[[Tokenizer], None]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "qwen2": _qwen2,
    "llama-bpe": _llama3,
}
"""`tokenizer.ggml.pre` → what sets the pre-tokeniser up."""


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokeniser that a GGUF file's `metadata` describes; TokeniserError when it is of another kind."""
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise TokeniserError(f"tokenizer.ggml.model is {model!r}: only the byte-level BPE 'gpt2' is read from a GGUF")
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENISERS:
        known = ", ".join(sorted(PRE_TOKENISERS))
        raise TokeniserError(f"tokenizer.ggml.pre {pre!r} is not known (known: {known}); give a tokenizer.json instead")
    tokens, merges = _field(metadata, "tokens"), _field(metadata, "merges")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [_pair(merge) for merge in merges]
    try:
        bpe = models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=pre == "llama-bpe")
    except Exception as error:  # tokenizers raises a bare Exception
        raise TokeniserError(f"tokenizer.ggml.merges do not fit tokenizer.ggml.tokens: {error}") from error
    tokenizer = Tokenizer(bpe)
    PRE_TOKENISERS[pre](tokenizer)
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, metadata.get("tokenizer.ggml.token_type", ()))
    return tokenizer


def _field(metadata: Mapping[str, Any], name: str) -> list[str]:
    values = metadata.get(f"tokenizer.ggml.{name}")
    if not isinstance(values, list):
        raise TokeniserError(f"tokenizer.ggml.{name} is missing")
    return values


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _add_tokens(tokenizer: Tokenizer, tokens: list[str], kinds: Any) -> None:
    """Control tokens become special, user-defined ones become plain added tokens; both are matched as written."""
    control = [AddedToken(t, normalized=False, special=True) for t, k in zip(tokens, kinds) if k == _CONTROL]
    own = [AddedToken(t, normalized=False, special=False) for t, k in zip(tokens, kinds) if k == _USER_DEFINED]
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(own)
