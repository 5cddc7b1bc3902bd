"""Answers and stream chunks in vLLM's JSON, key for key (recorded from 0.32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from backends.openai_logprobs import TokenNames, chat_logprobs, completion_logprobs, prompt_logprobs
from backends.openai_usage import Usage
from backends.openai_wire import Endpoint
from backends.types import Delta, SampledToken
from router.core import Json

DONE = b"data: [DONE]\n\n"
"""The last event of every stream."""


@dataclass(slots=True)
class ChoiceText:
    """One answer as it grows, after the prompt with these ids. `prompt_scores` has all of them but the first.

    `echoed` is the prompt's text, where it is to be repeated.
    """

    text: str = ""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: list[SampledToken] = field(default_factory=list)
    prompt_ids: Sequence[int] = ()
    echoed: str = ""
    token_ids: list[int] = field(default_factory=list)
    prompt_scores: Sequence[SampledToken] | None = None

    def extend(self, delta: Delta) -> None:
        """Append what a step brought."""
        self.text += delta.text
        self.finish_reason = delta.finish_reason
        self.stop_reason = delta.stop_reason
        self.logprobs.extend(delta.logprobs or ())
        self.token_ids.extend(delta.token_ids)
        self.prompt_scores = delta.prompt_logprobs or self.prompt_scores


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """What all chunks of one answer have in common. `created` is in Unix seconds.

    `logprobs`, `token_ids` and `scores_prompt` say what is told beside the text; with `echo` the prompt is told first.
    """

    endpoint: Endpoint
    answer_id: str
    created: int
    model: str
    fingerprint: str
    names: TokenNames
    logprobs: bool = False
    token_ids: bool = False
    scores_prompt: bool = False
    echo: bool = False

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
            scores, ids = self._prompt_scores(choices[0]), self._ids(choices[0].prompt_ids)
            body |= {"prompt_logprobs": scores, "prompt_token_ids": ids, "prompt_text": None}
        return msgspec.json.encode(body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None})

    def role_chunk(self, index: int, choice: ChoiceText, usage: Mapping[str, Json] | None) -> bytes:
        """A chat stream's first event of each answer; completions have none."""
        delta = {"role": "assistant", "content": ""}
        rendered = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
        extra = {"prompt_token_ids": self._ids(choice.prompt_ids), "prompt_text": None}
        return _event(self._head("chat.completion.chunk", [rendered]) | extra | ({"usage": usage} if usage else {}))

    def chunk(
        self, index: int, delta: Delta, choice: ChoiceText, *, usage: Mapping[str, Json] | None, last: bool
    ) -> bytes:
        """One event of a stream; `last` when no event but [DONE] follows, `choice` what came before it."""
        chat = self.endpoint is Endpoint.CHAT
        rendered = (self._chat_delta if chat else self._completion_delta)(index, delta, choice)
        body = self._head("chat.completion.chunk" if chat else "text_completion", [rendered])
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
            "logprobs": chat_logprobs(choice.logprobs, self.names) if self.logprobs else None,
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": self._ids(choice.token_ids),
            "routed_experts": None,
        }

    def _completion_choice(self, index: int, choice: ChoiceText) -> dict[str, Json]:
        return {
            "index": index,
            "text": choice.echoed + choice.text,
            "logprobs": self._whole_logprobs(choice),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": self._ids(choice.token_ids),
            "prompt_logprobs": self._prompt_scores(choice),
            "prompt_token_ids": self._ids(choice.prompt_ids),
            "routed_experts": None,
        }

    def _chat_delta(self, index: int, delta: Delta, _before: ChoiceText) -> dict[str, Json]:
        choice = {
            "index": index,
            "delta": {"content": delta.text},
            "logprobs": chat_logprobs(delta.logprobs or (), self.names) if self.logprobs else None,
            "finish_reason": delta.finish_reason,
        }
        if delta.finish_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        choice["token_ids"] = self._ids(delta.token_ids)
        return choice

    def _completion_delta(self, index: int, delta: Delta, before: ChoiceText) -> dict[str, Json]:
        logprobs = completion_logprobs(delta.logprobs or (), self.names, len(before.text)) if self.logprobs else None
        return {
            "index": index,
            "text": delta.text,
            "logprobs": logprobs,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
            "prompt_token_ids": None if before.token_ids else self._ids(before.prompt_ids),
            "token_ids": self._ids(delta.token_ids),
        }

    def _whole_logprobs(self, choice: ChoiceText) -> dict[str, Json] | None:
        if not self.logprobs:
            return None
        if not self.echo:
            return completion_logprobs(choice.logprobs, self.names, 0)
        tokens = [*(choice.prompt_scores or ()), *choice.logprobs]
        return completion_logprobs(tokens, self.names, 0, echoed=choice.prompt_ids[0])

    def _prompt_scores(self, choice: ChoiceText) -> list[Json] | None:
        return prompt_logprobs(choice.prompt_scores or (), self.names) if self.scores_prompt else None

    def _ids(self, token_ids: Sequence[int]) -> list[int] | None:
        """Token ids, for those who asked for them."""
        return list(token_ids) if self.token_ids else None


def error_event(body: Mapping[str, Json]) -> bytes:
    """An error after the stream's head is out, as vLLM: the error object, then [DONE]."""
    return _event(body) + DONE


def broken_off(body: Mapping[str, Json]) -> bytes:
    """An error that nobody foresaw, as a stream's last event: without [DONE] nobody takes what came for all."""
    return _event(body)


def _event(body: Mapping[str, Json]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"
