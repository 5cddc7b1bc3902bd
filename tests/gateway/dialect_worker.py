"""A worker that answers the Responses, Messages, embeddings and tokenising endpoints as vLLM 0.32 does on the wire.

Whole answers are recorded ones (tests/data/fixtures); streams are written as vLLM's public source writes them.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.gateway.builders import FIXTURES
from tests.gateway.scripted_worker import Exchange, ordinary

FASTAPI_NOT_FOUND = b'{"detail":"Not Found"}'


@cache
def recorded(name: str) -> bytes:
    """The body that vLLM 0.32 answered."""
    exchanges = json.loads((FIXTURES / "vllm-0.32" / "exchanges.json").read_text())
    return str(next(each["body"] for each in exchanges if each["name"] == name)).encode()


def named_event(name: str, **data: Any) -> bytes:
    """`event: NAME` with its data, which repeats the name as its type."""
    body = json.dumps({"type": name, **data}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {body}\n\n".encode()


RESPONSES_USAGE = {
    "input_tokens": 40,
    "input_tokens_details": {"cached_tokens": 32},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 42,
}


def response_object(status: str, **more: Any) -> dict[str, Any]:
    """What stands in `response` of the events that begin and end a stream."""
    return {
        "id": "resp_1",
        "created_at": 1,
        "model": "m",
        "object": "response",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": status,
        "error": None,
        "usage": None,
        **more,
    }


def response_events(*deltas: str, end: str = "completed") -> list[bytes]:
    """A stream of the Responses API, `[DONE]` not among it."""
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
    done = {**item, "status": "completed", "content": [{**part, "text": "".join(deltas)}]}
    last = response_object(end, usage=RESPONSES_USAGE, output=[done])
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": response_object("in_progress")}),
        ("response.in_progress", {"response": response_object("in_progress")}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.content_part.added", {**place, "part": part}),
        *[("response.output_text.delta", {**place, "delta": delta, "logprobs": []}) for delta in deltas],
        ("response.output_text.done", {**place, "text": "".join(deltas), "logprobs": []}),
        ("response.content_part.done", {**place, "part": {**part, "text": "".join(deltas)}}),
        ("response.output_item.done", {"output_index": 0, "item": done}),
        (f"response.{end}", {"response": last}),
    ]
    return [named_event(name, sequence_number=number, **data) for number, (name, data) in enumerate(events)]


def message_events(*deltas: str) -> list[bytes]:
    """A stream of the Messages API: usage in two parts, the cached tokens beside the others."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "m",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 8, "output_tokens": 0, "cache_read_input_tokens": 32},
    }
    return [
        named_event("message_start", message=message),
        named_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *[named_event("content_block_delta", index=0, delta={"type": "text_delta", "text": each}) for each in deltas],
        named_event("content_block_stop", index=0),
        named_event(
            "message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 2}
        ),
        named_event("message_stop"),
    ]


EMBEDDINGS = json.dumps(
    {
        "id": "embd-1",
        "object": "list",
        "created": 1,
        "model": "m",
        "data": [{"index": 0, "object": "embedding", "embedding": [0.25, -0.5]}],
        "usage": {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": None},
    }
).encode()

WHOLE = {
    "/v1/responses": lambda: recorded("responses"),
    "/v1/messages": lambda: recorded("messages"),
    "/v1/messages/count_tokens": lambda: b'{"input_tokens":18}',
    "/v1/embeddings": lambda: EMBEDDINGS,
    "/tokenize": lambda: recorded("tokenize"),
    "/detokenize": lambda: recorded("detokenize"),
}
STREAMS = {"/v1/responses": response_events, "/v1/messages": message_events}


def path_of(exchange: Exchange) -> str:
    """What the worker was asked at."""
    return exchange.head.split(b" ", 2)[1].decode()


async def send_events(exchange: Exchange, *events: bytes) -> None:
    """A whole stream, an event a chunk."""
    await exchange.begin_stream()
    for each in events:
        await exchange.chunk(each)
    await exchange.end_stream()


async def as_vllm(exchange: Exchange) -> None:
    """Whatever the endpoint answers; chat and completions as ever."""
    path = path_of(exchange)
    if path not in WHOLE:
        await ordinary(exchange)
    elif exchange.asked.get("stream"):
        await send_events(exchange, *STREAMS[path]("one", "北京🙂"))
    else:
        await exchange.send_json(WHOLE[path]())


async def without_endpoint(exchange: Exchange) -> None:
    """As a FastAPI worker that lacks the route."""
    await exchange.send_json(FASTAPI_NOT_FOUND, status="404 Not Found")
