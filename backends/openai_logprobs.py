"""Logprobs in vLLM's JSON: OpenAI's two shapes, and vLLM's own for the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backends.types import SampledToken
from router.core import Json

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""


@dataclass(frozen=True, slots=True)
class TokenNames:
    """What a token is called: its text, or `token_id:7` where the caller asked for ids."""

    decode: Decode
    by_id: bool = False

    def name(self, token_id: int) -> str:
        """One token's name."""
        return f"token_id:{token_id}" if self.by_id else self.decode([token_id])


def chat_logprobs(tokens: Sequence[SampledToken], names: TokenNames) -> dict[str, Json]:
    """The shape of chats: an object per token, with the best ones beside it."""
    return {"content": [_chat_token(token, names) for token in tokens]}


def completion_logprobs(
    tokens: Sequence[SampledToken], names: TokenNames, text_offset: int, *, echoed: int | None = None
) -> dict[str, Json]:
    """The shape of completions: four lists. `text_offset` is where the first token's text begins.

    With an `echoed` prompt its first token, of that id, comes before `tokens` and has no logprob.
    """
    texts = [names.name(token.token_id) for token in tokens]
    logprobs: list[float | None] = [finite(token.logprob) for token in tokens]
    best: list[dict[str, float] | None] = [
        _best_by_name(token, text, names) for token, text in zip(tokens, texts, strict=True)
    ]
    if echoed is not None:
        texts, logprobs, best = [names.name(echoed), *texts], [None, *logprobs], [None, *best]
    return {
        "text_offset": _offsets(texts, text_offset),
        "token_logprobs": logprobs,
        "tokens": texts,
        "top_logprobs": best,
    }


def prompt_logprobs(tokens: Sequence[SampledToken], names: TokenNames) -> list[Json]:
    """vLLM's own shape: for each prompt token, by id, itself and the best ones; null for the first."""
    return [None, *(_by_id(token, names) for token in tokens)]


def _by_id(token: SampledToken, names: TokenNames) -> dict[str, Json]:
    best = {token_id: (logprob, rank) for rank, (token_id, logprob) in enumerate(token.top, start=1)}
    entries = {token.token_id: (token.logprob, token.rank), **best}
    return {
        str(token_id): {"logprob": finite(logprob), "rank": rank, "decoded_token": names.decode([token_id])}
        for token_id, (logprob, rank) in entries.items()
    }


def _chat_token(token: SampledToken, names: TokenNames) -> dict[str, Json]:
    best = [_named(token_id, logprob, names) for token_id, logprob in token.top]
    return _named(token.token_id, token.logprob, names) | {"top_logprobs": best}


def _named(token_id: int, logprob: float | None, names: TokenNames) -> dict[str, Json]:
    name = names.name(token_id)
    return {"token": name, "logprob": finite(logprob), "bytes": list(name.encode())}


def _best_by_name(token: SampledToken, name: str, names: TokenNames) -> dict[str, float]:
    """The alternatives by name; two ids of one text show once, the better one."""
    top = {name: finite(token.logprob)}
    for token_id, logprob in token.top:
        top.setdefault(names.name(token_id), finite(logprob))
    return top


def finite(logprob: float | None) -> float:
    """JSON has no infinity; vLLM's floor is -9999."""
    return max(-9999.0, -9999.0 if logprob is None else logprob)


def _offsets(texts: Sequence[str], start: int) -> list[int]:
    offsets = []
    for text in texts:
        offsets.append(start)
        start += len(text)
    return offsets
