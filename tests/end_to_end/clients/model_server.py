"""A model server that speaks every endpoint as vLLM does, in a thread; what it is asked decides how it behaves.

A request that has tools is answered with a call of the first, until a tool's result is among the messages. Of the last
user text `refuse twice` gives two 503s, `break` a stream that is cut, `endless` one that goes on until somebody leaves,
`slow` a silence first.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from aiohttp import web

from tests.gateway.dialect_worker import EMBEDDINGS, message_events, named_event, response_events, response_object

MODEL = "vllm"
WORDS = ("Rain", " is", " likely", " 北京🙂.")
ARGUMENTS = '{"city": "Oslo"}'
USAGE = {
    "prompt_tokens": 40,
    "completion_tokens": 4,
    "total_tokens": 44,
    "prompt_tokens_details": {"cached_tokens": 32},
}
SLOW_SECONDS = 0.5


class ModelServer:
    """Answers, counts what it was asked by path and how often somebody left, keeps the last body of each path."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.left = 0
        self.bodies: dict[str, dict[str, Any]] = {}
        self.refusals: Counter[str] = Counter()
        self.url = ""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Any request."""
        if request.method == "GET":
            cards = {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 4096}]}
            return web.json_response(cards if request.path == "/v1/models" else {})
        body = await request.json()
        self.asked[request.path] += 1
        self.bodies[request.path] = body
        text = json.dumps(body)
        if "refuse twice" in text and self.refusals[text] < 2:
            self.refusals[text] += 1
            error = {"message": "full", "type": "ServiceUnavailableError", "param": None, "code": 503}
            return web.json_response({"error": error}, status=503, headers={"retry-after-ms": "30"})
        if "slow" in text:
            await asyncio.sleep(SLOW_SECONDS)
        if not body.get("stream"):
            return web.Response(body=_whole(request.path, body), content_type="application/json")
        return await self._stream(request, _events(request.path, body), text)

    async def _stream(self, request: web.BaseRequest, events: list[bytes], text: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        try:
            if "break" in text:
                await response.write(b"".join(events[: len(events) // 2]))
                await asyncio.sleep(0.05)
                assert request.transport is not None
                request.transport.abort()
            while "endless" in text:
                for each in events[: len(events) // 2]:
                    await response.write(each)
                await asyncio.sleep(0.02)
            for each in events:
                await response.write(each)
        except (ConnectionError, asyncio.CancelledError):
            self.left += 1
            raise
        return response


def _calls(body: dict[str, Any]) -> bool:
    """Whether a tool is to be called."""
    said = json.dumps([body.get("messages"), body.get("input")])
    return bool(body.get("tools")) and not any(mark in said for mark in ('"tool"', "tool_result", "function_call_out"))


def _whole(path: str, body: dict[str, Any]) -> bytes:
    if path == "/v1/embeddings":
        return EMBEDDINGS
    if path.endswith("count_tokens"):
        return b'{"input_tokens":18}'
    if path in ("/tokenize", "/detokenize"):
        return b'{"count":3,"max_model_len":4096,"tokens":[1,2,3],"token_strs":null,"prompt":"abc"}'
    maker = {"/v1/responses": _response, "/v1/messages": _message}.get(path, _chat)
    return json.dumps(maker(body)).encode()


def _chat(body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(WORDS)}
    if _calls(body):
        function = {"name": "weather", "arguments": ARGUMENTS}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if _calls(body) else "stop"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice], "usage": USAGE}


def _response(body: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "output_text", "text": "".join(WORDS), "annotations": []}]
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    call = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "weather", "arguments": ARGUMENTS}
    usage = {
        "input_tokens": 40,
        "input_tokens_details": {"cached_tokens": 32},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 44,
    }
    return response_object("completed", output=[call if _calls(body) else item], usage=usage)


def _message(body: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "text", "text": "".join(WORDS)}
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": json.loads(ARGUMENTS)}
    usage = {"input_tokens": 8, "output_tokens": 4, "cache_read_input_tokens": 32, "cache_creation_input_tokens": 0}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [call if _calls(body) else text],
        "stop_reason": "tool_use" if _calls(body) else "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def _events(path: str, body: dict[str, Any]) -> list[bytes]:
    if path == "/v1/responses":
        return _response_call_events() if _calls(body) else response_events(*WORDS)
    if path == "/v1/messages":
        return _message_call_events() if _calls(body) else message_events(*WORDS)
    return _chat_events(body)


def _chat_events(body: dict[str, Any]) -> list[bytes]:
    function = {"name": "weather", "arguments": ""}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *[{"content": word} for word in WORDS]]
    if _calls(body):
        deltas = [
            {"role": "assistant", "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[:6]}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS[6:]}}]},
        ]
    choices = [[{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas]
    choices.append([{"index": 0, "delta": {}, "finish_reason": "tool_calls" if _calls(body) else "stop"}])
    common = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    chunks: list[dict[str, Any]] = [{**common, "choices": each} for each in choices]
    if (body.get("stream_options") or {}).get("include_usage"):
        chunks.append({**common, "choices": [], "usage": USAGE})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def _response_call_events() -> list[bytes]:
    call = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "weather", "arguments": ""}
    done = {**call, "arguments": ARGUMENTS, "status": "completed"}
    place = {"item_id": "fc_1", "output_index": 0}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": response_object("in_progress")}),
        ("response.output_item.added", {"output_index": 0, "item": call}),
        ("response.function_call_arguments.delta", {**place, "delta": ARGUMENTS}),
        ("response.function_call_arguments.done", {**place, "arguments": ARGUMENTS}),
        ("response.output_item.done", {"output_index": 0, "item": done}),
        ("response.completed", {"response": _response({"tools": [1]})}),
    ]
    return [named_event(name, sequence_number=number, **data) for number, (name, data) in enumerate(events)]


def _message_call_events() -> list[bytes]:
    start, _, *_, _, end = message_events()
    block = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": ARGUMENTS}
    why = {"stop_reason": "tool_use", "stop_sequence": None}
    return [
        start,
        named_event("content_block_start", index=0, content_block=block),
        named_event("content_block_delta", index=0, delta=delta),
        named_event("content_block_stop", index=0),
        named_event("message_delta", delta=why, usage={"output_tokens": 4}),
        end,
    ]


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """One that listens on a free port, in a thread of its own."""
    server, loop = ModelServer(), asyncio.new_event_loop()

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(server.answer, handler_cancellation=True), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
