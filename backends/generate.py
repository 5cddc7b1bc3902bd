"""The two generating endpoints, from body to last byte."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from aiohttp import web

from backends.api_errors import ApiError, InternalError, QueuedTokensOverflowError, QueueOverflowError
from backends.async_engine import OpenAnswer
from backends.cache_control import covered_tokens
from backends.cache_fields import CacheWish
from backends.conversation import Conversation
from backends.http_bodies import read_json
from backends.http_server import log_fault
from backends.metrics import REJECTED_REQUESTS, REJECTED_TOKENS
from backends.openai_answers import broken_off, error_event
from backends.openai_wire import Call, Endpoint, parse_call
from backends.retention import ORDINARY, CachePolicy
from backends.serving import Worker
from backends.types import GenerationRequest
from router.core import PromptSource

STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}


async def generate(worker: Worker, endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
    """Answer one call; raises ApiError as long as nothing has been sent. A client that leaves aborts it."""
    call = parse_call(endpoint, await read_json(request), worker.settings.wire_limits)
    worker.require_model(call.model)
    with worker.serving():
        requests = [await _request(worker, call, index) for index in range(len(call.prompts))]
        if call.reports_reused:
            await _tell_again(worker, requests)
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


async def _tell_again(worker: Worker, requests: Sequence[GenerationRequest]) -> None:
    """KV events about what is cached of these prompts already, for routers that came late."""
    for request in requests:
        await worker.engine.call(partial(worker.events.repeat, worker.holdings, request))


async def _request(worker: Worker, call: Call, index: int) -> GenerationRequest:
    """The engine's request for one prompt of a call."""
    source = call.prompts[index]
    prompt_ids = await worker.prompts.read(
        source, call.sampling.max_tokens, add_special_tokens=call.adds_special_tokens
    )
    return GenerationRequest(
        request_id=f"{index}-{uuid.uuid4().hex}",
        prompt_ids=prompt_ids,
        sampling=worker.with_seed(call.sampling),
        cache_salt=call.cache_salt,
        arrival_seconds=time.monotonic(),
        priority=call.priority,
        cache=await _cache_policy(worker, call.wish, source, prompt_ids),
        partition=call.wish.partition,
        reads_cache=call.sampling.prompt_logprobs is None,
    )


async def _cache_policy(worker: Worker, wish: CacheWish, source: PromptSource, ids: Sequence[int]) -> CachePolicy:
    """The wish in the engine's terms: a mark on a message becomes a number of tokens."""
    if wish.marked_messages is None:
        return wish.policy
    tokens = await covered_tokens(worker.prompts, source, ids, wish.marked_messages)
    return replace(wish.policy, until_token=tokens) if tokens else ORDINARY


def _answer_id(endpoint: Endpoint, request: web.Request) -> str:
    """vLLM takes the caller's X-Request-Id into the answer's id."""
    return f"{endpoint.value}-{request.headers.get('X-Request-Id') or uuid.uuid4().hex[:16]}"


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
        except ConnectionResetError:
            raise
        except Exception as fault:  # noqa: BLE001 - the head is out: an answer of the middleware's would land in the body
            log_fault(request, fault)
            await response.write(broken_off(InternalError("The worker failed on this request.").body()))
        await response.write_eof()
    return response
