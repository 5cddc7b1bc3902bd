"""Simulated workers in one process: an OpenAI API on a port each, as much of it as routers and gateways ask for.

    python -m bench.live.workers --ports 9101,9102 --cache-blocks 4000 --speed-up 20

prints `ready` once all of them listen. Beside the API: GET /stats (what the worker did), POST /reset.
"""

# ruff: noqa: ARG002, D102 - asyncio and httptools name these methods, and call them with what they have

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import httptools
import uvloop

from bench.live.engine import BLOCK_TOKENS, SimulatedWorker

MODEL = "simulated"
CONTEXT_TOKENS = 1_000_000
CREATED = 1_700_000_000
JSON, TEXT = b"application/json", b"text/plain; version=0.0.4; charset=utf-8"


class Asked:
    """One request as it comes in."""

    def __init__(self) -> None:
        self.target = b""
        self.body = bytearray()


class Connection(asyncio.Protocol):
    """One caller; what it asked for is given up when it leaves."""

    def __init__(self, worker: SimulatedWorker) -> None:
        self._worker = worker
        self._asked = Asked()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        for task in self._answering:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._write(_answer(b'{"error":{"message":"no HTTP"}}', b"400 Bad Request"))

    def on_url(self, url: bytes) -> None:
        self._asked.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"expect":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        self._asked.body += data

    def on_message_complete(self) -> None:
        asked, self._asked = self._asked, Asked()
        path = asked.target.partition(b"?")[0].decode()
        if path in ("/v1/chat/completions", "/v1/completions"):
            task = asyncio.ensure_future(self._complete(bytes(asked.body)))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:
            self._write(_page(self._worker, path))

    async def _complete(self, body: bytes) -> None:
        try:
            asked = json.loads(body)
            text, tokens = _text_of(asked), int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16)
        except (ValueError, KeyError, TypeError) as error:
            self._write(_answer(json.dumps({"error": {"message": str(error)}}).encode(), b"400 Bad Request"))
            return
        async with self._worker.prefilled(text) as cached:
            streams = bool(asked.get("stream"))
            if streams:
                self._write(_stream_head(self._worker.number))
            await self._worker.decode(tokens)
        usage = _usage(len(text), cached, tokens)
        if streams:
            with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
            self._write(_stream_end(usage if with_usage else None))
        else:
            self._write(_answer(json.dumps(_whole(usage)).encode()))

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _text_of(asked: Mapping[str, Any]) -> str:
    """The prompt as one text, nothing between messages."""
    if "messages" not in asked:
        return str(asked["prompt"])
    return "".join(_content(message.get("content")) for message in asked["messages"])


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _usage(prompt: int, cached: int, output: int) -> dict[str, Any]:
    totals = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    return {**totals, "prompt_tokens_details": {"cached_tokens": cached}}


def _whole(usage: Mapping[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    return {**_named("chat.completion"), "choices": [choice], "usage": usage}


def _named(kind: str) -> dict[str, Any]:
    return {"id": "simulated", "object": kind, "created": CREATED, "model": MODEL}


def _stream_head(number: int) -> bytes:
    delta = {"role": "assistant", "content": f"w{number}"}
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + _chunk(_event([{"index": 0, "delta": delta, "finish_reason": None}]))


def _stream_end(usage: Mapping[str, Any] | None) -> bytes:
    events = _event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    if usage is not None:
        events += _event([], usage=usage)
    return _chunk(events + b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _event(choices: Sequence[Mapping[str, Any]], **more: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps({**_named("chat.completion.chunk"), "choices": choices, **more}).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _answer(body: bytes, status: bytes = b"200 OK", kind: bytes = JSON) -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (status, kind, len(body), body)


def _page(worker: SimulatedWorker, path: str) -> bytes:
    if path == "/metrics":
        return _answer(_metrics(worker).encode(), kind=TEXT)
    if path == "/reset":
        worker.forget()
    about = {
        "/health": {},
        "/health_generate": {},
        "/reset": {},
        "/stats": {**asdict(worker.counts), "waiting": worker.waiting, "running": worker.running},
        "/v1/models": {"object": "list", "data": [_card()]},
        "/version": {"version": "0.32.0"},
        "/get_model_info": {"model_path": MODEL, "is_generation": True},
        "/get_server_info": {"model_path": MODEL, "served_model_name": MODEL, "dp_size": 1, "version": "0"},
    }
    about["/model_info"], about["/server_info"] = about["/get_model_info"], about["/get_server_info"]
    if path not in about:
        return _answer(b'{"detail":"Not Found"}', b"404 Not Found")
    return _answer(json.dumps(about[path]).encode())


def _card() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": CREATED, "owned_by": "vllm", "max_model_len": CONTEXT_TOKENS}


def _metrics(worker: SimulatedWorker) -> str:
    counts, cache = worker.counts, worker.cache
    labels = f'{{engine="0",model_name="{MODEL}"}}'
    config = f'{{block_size="{BLOCK_TOKENS}",enable_prefix_caching="True",engine="0",num_gpu_blocks="{cache.blocks}"}}'
    rows = [
        ("gauge", "vllm:num_requests_running", labels, worker.running),
        ("gauge", "vllm:num_requests_waiting", labels, worker.waiting),
        ("gauge", "vllm:kv_cache_usage_perc", labels, min(1.0, cache.held / cache.blocks)),
        ("counter", "vllm:prefix_cache_queries_total", labels, counts.prompt_tokens),
        ("counter", "vllm:prefix_cache_hits_total", labels, counts.cached_tokens),
        ("counter", "vllm:prompt_tokens_total", labels, counts.prompt_tokens),
        ("counter", "vllm:generation_tokens_total", labels, counts.output_tokens),
        ("gauge", "vllm:cache_config_info", config, 1),
        ("gauge", "process_start_time_seconds", "", worker.started_at),
    ]
    return "".join(f"# TYPE {name} {kind}\n{name}{of} {value}\n" for kind, name, of, value in rows)


async def serve(ports: Sequence[int], cache_blocks: int, speed_up: float) -> None:
    """Listen on every port until cancelled."""
    loop = asyncio.get_running_loop()
    for number, port in enumerate(ports):
        worker = SimulatedWorker(number, cache_blocks, speed_up)
        await loop.create_server(lambda worker=worker: Connection(worker), "127.0.0.1", port, backlog=1024)
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", required=True, help="one worker for each, joined by commas; on 127.0.0.1")
    parser.add_argument("--cache-blocks", type=int, default=4000, help="of 512 characters")
    parser.add_argument("--speed-up", type=float, default=20.0, help="how many seconds pass in one")
    options = parser.parse_args()
    uvloop.run(serve([int(port) for port in options.ports.split(",")], options.cache_blocks, options.speed_up))


if __name__ == "__main__":
    main()
