"""The two generating endpoints, from body to last byte."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress

from aiohttp import web

from backends.api_errors import ApiError, QueuedTokensOverflowError, QueueOverflowError
from backends.async_engine import OpenAnswer
from backends.http_bodies import read_json
from backends.metrics import REJECTED_REQUESTS, REJECTED_TOKENS
from backends.openai_answers import DONE, AnswerStyle, ChoiceText, Usage, error_event
from backends.openai_wire import Call, Endpoint, parse_call
from backends.serving import Worker
from backends.types import Delta, GenerationRequest

STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}


async def generate(worker: Worker, endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
    """Answer one call; raises ApiError as long as nothing has been sent. A client that leaves aborts it."""
    call = parse_call(endpoint, await read_json(request))
    worker.require_model(call.model)
    with worker.serving():
        requests = [await _request(worker, call, index) for index in range(len(call.prompts))]
        conversation = Conversation(worker, call, requests, _answer_id(endpoint, request))
        try:
            async with worker.engine.answer(requests) as answer:
                if call.stream:
                    return await _stream(conversation, answer, request)
                return await _whole(conversation, answer)
        except (QueueOverflowError, QueuedTokensOverflowError) as error:
            tokens = isinstance(error, QueuedTokensOverflowError)
            worker.metrics.rejected(REJECTED_TOKENS if tokens else REJECTED_REQUESTS)
            raise


async def _request(worker: Worker, call: Call, index: int) -> GenerationRequest:
    """The engine's request for one prompt of a call."""
    prompt_ids = await worker.prompts.read(call.prompts[index], call.sampling.max_tokens)
    return GenerationRequest(
        request_id=f"{index}-{uuid.uuid4().hex}",
        prompt_ids=prompt_ids,
        sampling=worker.with_seed(call.sampling),
        cache_salt=call.cache_salt,
        arrival_seconds=time.monotonic(),
    )


def _answer_id(endpoint: Endpoint, request: web.Request) -> str:
    """vLLM takes the caller's X-Request-Id into the answer's id."""
    return f"{endpoint.value}-{request.headers.get('X-Request-Id') or uuid.uuid4().hex[:16]}"


class Conversation:
    """What has come of one call so far: which delta belongs to which choice, and the counts."""

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
            decode=worker.prompts.text.tokeniser.decode,
            logprobs=call.sampling.logprobs is not None,
        )
        self._block_tokens = settings.cached_block_tokens
        self._position = {request.request_id: index for index, request in enumerate(requests)}
        self.choices = [ChoiceText() for _ in range(len(requests) * call.sampling.n)]
        self._tokens = [0] * len(self.choices)
        self._counted: set[str] = set()
        self._open = len(self.choices)

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
        usage = self.usage.totals() if self.call.continuous_usage else None
        if first and self.call.endpoint is Endpoint.CHAT:
            yield from (self.style.role_chunk(index, usage) for index in range(len(self.choices)))
        for position, (index, delta) in enumerate(indexed, start=1):
            last = self._open == 0 and position == len(indexed) and not self.call.include_usage
            choice = self.choices[index]
            yield self.style.chunk(index, delta, len(choice.text), usage=usage, last=last)
            choice.extend(delta)

    def end(self) -> bytes:
        """What closes a stream: the counts if they were asked for, and the end mark."""
        return (self.style.usage_chunk(self.usage) if self.call.include_usage else b"") + DONE


async def _whole(conversation: Conversation, answer: OpenAnswer) -> web.Response:
    async for deltas in answer:
        for delta in deltas:
            conversation.choices[conversation.take(delta)].extend(delta)
    return web.Response(body=conversation.whole(), content_type="application/json")


async def _stream(conversation: Conversation, answer: OpenAnswer, request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers=STREAM_HEADERS)
    with suppress(ConnectionResetError):  # the client is gone; leaving aborts the request
        await response.prepare(request)
        try:
            async for deltas in answer:
                await response.write(b"".join(conversation.events(deltas)))
            await response.write(conversation.end())
        except ApiError as error:
            await response.write(error_event(error.body()))
        await response.write_eof()
    return response
