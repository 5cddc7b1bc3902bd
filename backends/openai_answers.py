"""Answers and stream chunks in vLLM's JSON, key for key (recorded from 0.32)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from backends.openai_wire import Endpoint
from backends.types import Delta, SampledToken
from router.core import Json

DONE = b"data: [DONE]\n\n"
"""The last event of every stream."""

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""


@dataclass(slots=True)
class ChoiceText:
    """One answer as it grows."""

    text: str = ""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: list[SampledToken] = field(default_factory=list)

    def extend(self, delta: Delta) -> None:
        """Append what a step brought."""
        self.text += delta.text
        self.finish_reason = delta.finish_reason
        self.stop_reason = delta.stop_reason
        self.logprobs.extend(delta.logprobs or ())


@dataclass(slots=True)
class Usage:
    """Token counts of one request, summed over its prompts and answers.

    `created_cache_tokens` None: no prompt filled a block. `details` says whether cached tokens are told.
    """

    details: bool
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    created_cache_tokens: int | None = None

    def add_prompt(self, prompt_tokens: int, cached_tokens: int, block_tokens: int | None) -> None:
        """Count a prompt once, whatever its number of answers; `block_tokens` None when nothing is cached."""
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        full = 0 if block_tokens is None else prompt_tokens // block_tokens * block_tokens
        if full:
            self.created_cache_tokens = (self.created_cache_tokens or 0) + full - cached_tokens

    def totals(self) -> dict[str, Json]:
        """The three counts every usage has."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": total,
            "completion_tokens": self.completion_tokens,
        }

    def whole(self) -> dict[str, Json]:
        """As in an answer that is not streamed: absent things are null."""
        details = {
            "cached_tokens": self.cached_tokens,
            "created_cache_tokens": self.created_cache_tokens,
            "multimodal_tokens": None,
        }
        shown = details if self.details else None
        return {**self.totals(), "prompt_tokens_details": shown, "completion_tokens_details": None}

    def streamed(self) -> dict[str, Json]:
        """As in a stream's last chunk: absent things are left out."""
        if not self.details:
            return self.totals()
        details = {"cached_tokens": self.cached_tokens}
        if self.created_cache_tokens is not None:
            details["created_cache_tokens"] = self.created_cache_tokens
        return {**self.totals(), "prompt_tokens_details": details}


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """What all chunks of one answer have in common. `created` is in Unix seconds."""

    endpoint: Endpoint
    answer_id: str
    created: int
    model: str
    fingerprint: str
    decode: Decode
    logprobs: bool = False

    def whole(self, choices: Sequence[ChoiceText], usage: Usage) -> bytes:
        """The body of an answer that is not streamed."""
        chat = self.endpoint is Endpoint.CHAT
        rendered = [
            (self._chat_choice if chat else self._completion_choice)(index, choice)
            for index, choice in enumerate(choices)
        ]
        body = self._head("chat.completion" if chat else "text_completion", rendered)
        body |= {"service_tier": None, "system_fingerprint": self.fingerprint, "usage": usage.whole()}
        if chat:
            body |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        return msgspec.json.encode(body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None})

    def role_chunk(self, index: int, usage: Mapping[str, Json] | None) -> bytes:
        """A chat stream's first event of each answer; completions have none."""
        delta = {"role": "assistant", "content": ""}
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        extra = {"prompt_token_ids": None, "prompt_text": None} | ({"usage": usage} if usage else {})
        return _event(self._head("chat.completion.chunk", [choice]) | extra)

    def chunk(
        self, index: int, delta: Delta, text_offset: int, *, usage: Mapping[str, Json] | None, last: bool
    ) -> bytes:
        """One event of a stream; `last` when no event but [DONE] follows, `text_offset` in characters so far."""
        chat = self.endpoint is Endpoint.CHAT
        choice = (self._chat_delta if chat else self._completion_delta)(index, delta, text_offset)
        body = self._head("chat.completion.chunk" if chat else "text_completion", [choice])
        if usage:
            body["usage"] = usage
        if last:
            body["system_fingerprint"] = self.fingerprint
        return _event(body)

    def usage_chunk(self, usage: Usage) -> bytes:
        """The event with the counts, no choices in it."""
        kind = "chat.completion.chunk" if self.endpoint is Endpoint.CHAT else "text_completion"
        body = self._head(kind, [])
        return _event(body | {"usage": usage.streamed(), "system_fingerprint": self.fingerprint})

    def _head(self, kind: str, choices: list[dict[str, Json]]) -> dict[str, Json]:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _chat_choice(self, index: int, choice: ChoiceText) -> dict[str, Json]:
        message = {
            "role": "assistant",
            "content": choice.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
        return {
            "index": index,
            "message": message,
            "logprobs": self._chat_logprobs(choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": None,
            "routed_experts": None,
        }

    def _completion_choice(self, index: int, choice: ChoiceText) -> dict[str, Json]:
        return {
            "index": index,
            "text": choice.text,
            "logprobs": self._completion_logprobs(choice.logprobs, 0),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }

    def _chat_delta(self, index: int, delta: Delta, _text_offset: int) -> dict[str, Json]:
        choice = {
            "index": index,
            "delta": {"content": delta.text},
            "logprobs": self._chat_logprobs(delta.logprobs or ()),
            "finish_reason": delta.finish_reason,
        }
        if delta.finish_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        choice["token_ids"] = None
        return choice

    def _completion_delta(self, index: int, delta: Delta, text_offset: int) -> dict[str, Json]:
        return {
            "index": index,
            "text": delta.text,
            "logprobs": self._completion_logprobs(delta.logprobs or (), text_offset),
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
            "prompt_token_ids": None,
            "token_ids": None,
        }

    def _chat_logprobs(self, tokens: Sequence[SampledToken]) -> dict[str, Json] | None:
        if not self.logprobs:
            return None
        return {"content": [self._chat_token(token) for token in tokens]}

    def _chat_token(self, token: SampledToken) -> dict[str, Json]:
        best = [self._token_logprob(token_id, logprob) for token_id, logprob in token.top]
        return self._token_logprob(token.token_id, token.logprob) | {"top_logprobs": best}

    def _token_logprob(self, token_id: int, logprob: float | None) -> dict[str, Json]:
        text = self.decode([token_id])
        return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}

    def _completion_logprobs(self, tokens: Sequence[SampledToken], text_offset: int) -> dict[str, Json] | None:
        if not self.logprobs:
            return None
        texts = [self.decode([token.token_id]) for token in tokens]
        return {
            "text_offset": _offsets(texts, text_offset),
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "tokens": texts,
            "top_logprobs": [self._top_by_text(token, text) for token, text in zip(tokens, texts, strict=True)],
        }

    def _top_by_text(self, token: SampledToken, text: str) -> dict[str, float]:
        """The alternatives by text; two ids of one text show once, the better one."""
        top = {text: _finite(token.logprob)}
        for token_id, logprob in token.top:
            top.setdefault(self.decode([token_id]), _finite(logprob))
        return top


def error_event(body: Mapping[str, Json]) -> bytes:
    """An error after the stream's head is out, as vLLM: the error object, then [DONE]."""
    return _event(body) + DONE


def _event(body: Mapping[str, Json]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _finite(logprob: float | None) -> float:
    """JSON has no infinity; vLLM's floor is -9999."""
    return max(-9999.0, -9999.0 if logprob is None else logprob)


def _offsets(texts: Sequence[str], start: int) -> list[int]:
    offsets = []
    for text in texts:
        offsets.append(start)
        start += len(text)
    return offsets
