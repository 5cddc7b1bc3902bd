"""What has come of one call so far: which news belongs to which answer, the counts, and their rendering."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from backends.openai_answers import DONE, AnswerStyle, ChoiceText
from backends.openai_logprobs import TokenNames
from backends.openai_usage import Usage
from backends.openai_wire import Call, Endpoint
from backends.serving import Worker
from backends.types import Delta, GenerationRequest
from router.core import Json, PromptSource


class Conversation:
    """Follows a call from its first delta to its last."""

    def __init__(self, worker: Worker, call: Call, requests: Sequence[GenerationRequest], answer_id: str) -> None:
        settings = worker.settings
        self.call = call
        self.usage = Usage(details=settings.prompt_tokens_details)
        self.style = AnswerStyle(
            endpoint=call.endpoint,
            answer_id=answer_id,
            created=int(time.time()),
            model=call.model or settings.served_names[0],
            fingerprint=settings.fingerprint,
            names=TokenNames(worker.prompts.text.tokeniser.decode, call.names_tokens_by_id),
            logprobs=call.sampling.logprobs is not None,
            token_ids=call.returns_token_ids,
            scores_prompt=call.sampling.prompt_logprobs is not None,
            echo=call.echo,
        )
        self._block_tokens = settings.cached_block_tokens
        self._position = {request.request_id: index for index, request in enumerate(requests)}
        self.choices = [
            ChoiceText(prompt_ids=request.prompt_ids, echoed=self._echoed(source, request.prompt_ids))
            for source, request in zip(call.prompts, requests, strict=True)
            for _ in range(call.sampling.n)
        ]
        self._tokens = [0] * len(self.choices)
        self._counted: set[str] = set()
        self._open = len(self.choices)

    def _echoed(self, source: PromptSource, prompt_ids: Sequence[int]) -> str:
        """The prompt as it was given, without what the tokeniser put before it; of token ids, their text."""
        if not self.call.echo:
            return ""
        return source.prompt if isinstance(source.prompt, str) else self.style.names.decode(prompt_ids)

    def take(self, delta: Delta) -> int:
        """Count a delta; the index of its choice."""
        index = self._position[delta.request_id] * self.call.sampling.n + delta.choice
        if delta.request_id not in self._counted:
            self._counted.add(delta.request_id)
            self.usage.add_prompt(delta.prompt_tokens, delta.cached_tokens, self._block_tokens)
        self.usage.completion_tokens += delta.completion_tokens - self._tokens[index]
        self._tokens[index] = delta.completion_tokens
        self._open -= delta.finish_reason is not None
        return index

    def whole(self) -> bytes:
        """The body of the complete answer."""
        return self.style.whole(self.choices, self.usage)

    def events(self, deltas: Sequence[Delta]) -> Iterator[bytes]:
        """The stream events for a step's deltas; the roles of all choices come before the first of them."""
        first = not self._counted
        indexed = [(self.take(delta), delta) for delta in deltas]
        if first and self.call.endpoint is Endpoint.CHAT:
            for index, choice in enumerate(self.choices):
                yield self.style.role_chunk(index, choice, self._usage_of(choice, 0))
        for position, (index, delta) in enumerate(indexed, start=1):
            last = self._open == 0 and position == len(indexed) and not self.call.include_usage
            choice = self.choices[index]
            usage = self._usage_of(choice, delta.completion_tokens)
            yield self.style.chunk(index, delta, choice, usage=usage, last=last)
            choice.extend(delta)

    def _usage_of(self, choice: ChoiceText, completion_tokens: int) -> dict[str, Json] | None:
        """The counts beside a chunk, where they were asked for: those of its own answer, as in vLLM."""
        if not self.call.continuous_usage:
            return None
        return Usage(False, len(choice.prompt_ids), completion_tokens).totals()

    def end(self) -> bytes:
        """What closes a stream: the counts if they were asked for, and the end mark."""
        return (self.style.usage_chunk(self.usage) if self.call.include_usage else b"") + DONE
