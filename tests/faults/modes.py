"""What a fault-injection worker does with a request, by mode: whole answers, and every way of breaking one."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.faults.garbage import GARBAGE

if TYPE_CHECKING:
    from tests.faults.worker import Attempt, Work

MODEL = "m"
POISON = "this prompt ends engines"
PREFIX_CHARACTERS = 64
"""How much of a prompt's text the simulated prefix cache goes by."""


@dataclass
class Behaviour:
    """How the worker behaves; times in seconds. `share` of the requests meet the mode, the others get an answer.

    `pages`: how /health, /metrics and /v1/models are answered: ok, down (503) or hang. `first_seconds` is before the
    first byte, `gap_seconds` between events. With `cache`, a prompt whose beginning and salt were seen answers after
    `hit_seconds` instead of `first_seconds`, with up to `jitter` of either as noise.
    """

    mode: str = "ok"
    share: float = 1.0
    n: int = 3
    status: int = 500
    tokens: int = 5
    first_seconds: float = 0.0
    gap_seconds: float = 0.0
    pages: str = "ok"
    cache: bool = False
    hit_seconds: float = 0.0
    jitter: float = 0.2
    pad_bytes: int = 0
    cache_blocks: int = 1000


def header(head: bytes, name: str) -> str | None:
    """A field of a request's head."""
    for line in head.decode("latin-1").split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return None


def whole(body: bytes, status: bytes = b"200 OK", fields: bytes = b"") -> bytes:
    """A complete answer with JSON in it."""
    return b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b" % (
        status, len(body), fields, body,
    )  # fmt: skip


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def page(path: str, work: Work) -> bytes:
    """What the worker says of itself."""
    if path == "/v1/models":
        card = {"id": MODEL, "object": "model", "max_model_len": 65536}
        return json.dumps({"object": "list", "data": [card]}).encode()
    if path == "/metrics":
        size = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{work.behaviour.cache_blocks}"}} 1\n'
        started = f"process_start_time_seconds {os.stat('/proc/self').st_ctime:.2f}\n"
        return f"vllm:num_requests_running {work.live}\nvllm:num_requests_waiting 0\n{size}{started}".encode()
    return b"{}"


def event(attempt: Attempt, number: int) -> bytes:
    """One chunk of output, with the caller's own nonce in it."""
    text = f"t{number} {attempt.asked.get('nonce')} " + "x" * attempt.work.behaviour.pad_bytes
    body = {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage(attempt: Attempt, cached_tokens: int) -> dict[str, Any]:
    prompt_tokens, tokens = len(attempt.body) // 4, attempt.work.behaviour.tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens}}  # fmt: skip


async def answer(attempt: Attempt) -> None:
    """Answer, or break, as the mode says."""
    behaviour = attempt.work.behaviour
    mode = MODES[behaviour.mode] if attempt.work.afflicted() else ordinary
    await mode(attempt)


async def ordinary(attempt: Attempt) -> None:
    """A complete answer: a stream where one is asked for."""
    cached_tokens = await first_pause(attempt)
    if attempt.asked.get("stream"):
        await begin(attempt, attempt.work.behaviour.tokens)
        if (attempt.asked.get("stream_options") or {}).get("include_usage"):
            told = {"id": "c", "choices": [], "usage": usage(attempt, cached_tokens)}
            await attempt.send(chunk(b"data: " + json.dumps(told).encode() + b"\n\n"))
        attempt.end("done")  # before the last bytes: the gateway may act on them at once
        await attempt.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return
    await asyncio.sleep(attempt.work.behaviour.gap_seconds * attempt.work.behaviour.tokens)
    message = {"role": "assistant", "content": str(attempt.asked.get("nonce"))}
    body = {"id": "c", "object": "chat.completion", "usage": usage(attempt, cached_tokens),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}  # fmt: skip
    attempt.end("done")
    await attempt.send(whole(json.dumps(body).encode()))


async def first_pause(attempt: Attempt) -> int:
    """Wait as prefill would; the tokens that the simulated cache had."""
    behaviour, seconds, cached_tokens = attempt.work.behaviour, attempt.work.behaviour.first_seconds, 0
    if behaviour.cache:
        text = str(attempt.asked.get("messages"))[:PREFIX_CHARACTERS]
        key = f"{attempt.asked.get('cache_salt')} {text}"
        if key in attempt.work.seen:
            seconds, cached_tokens = behaviour.hit_seconds, len(text) // 4
        attempt.work.seen.add(key)
        seconds *= 1 + behaviour.jitter * random.random()
    if seconds:
        await asyncio.sleep(seconds)
    return cached_tokens


async def begin(attempt: Attempt, count: int) -> None:
    """The head and so many events of a stream."""
    await attempt.send(STREAM_HEAD)
    for number in range(count):
        if number and attempt.work.behaviour.gap_seconds:
            await asyncio.sleep(attempt.work.behaviour.gap_seconds)
        await attempt.send(chunk(event(attempt, number)))


def reset(attempt: Attempt) -> None:
    raw: socket.socket = attempt.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    attempt.end("reset")
    attempt.transport.abort()


def finish(attempt: Attempt) -> None:
    attempt.end("fin")
    attempt.transport.close()


async def reset_at_once(attempt: Attempt) -> None:
    await asyncio.sleep(attempt.work.behaviour.first_seconds)
    reset(attempt)


async def finish_at_once(attempt: Attempt) -> None:
    await asyncio.sleep(attempt.work.behaviour.first_seconds)
    finish(attempt)


async def reset_after(attempt: Attempt) -> None:
    await begin(attempt, attempt.work.behaviour.n)
    await asyncio.sleep(0.02)  # so that the events are on their way before the reset throws the rest away
    reset(attempt)


async def finish_after(attempt: Attempt) -> None:
    await begin(attempt, attempt.work.behaviour.n)
    finish(attempt)


async def hang(attempt: Attempt) -> None:
    await asyncio.Event().wait()


async def stall(attempt: Attempt) -> None:
    await begin(attempt, attempt.work.behaviour.n)
    await asyncio.Event().wait()


async def refuse(attempt: Attempt) -> None:
    status = b"%d Trouble" % attempt.work.behaviour.status
    attempt.end("refused")
    await attempt.send(whole(b'{"error":{"message":"trouble","type":"server_error","code":null}}', status))


async def overloaded(attempt: Attempt) -> None:
    attempt.end("refused")
    await attempt.send(whole(b'{"error":{"message":"busy"}}', b"429 Too Many Requests", b"retry-after: 1\r\n"))


async def poison(attempt: Attempt) -> None:
    """An engine that a marked prompt ends, and whoever dies on it is down until somebody starts it again."""
    if POISON.encode() in attempt.body:
        attempt.die()
    await ordinary(attempt)


async def garbage(attempt: Attempt) -> None:
    """The next of the corpus, then the end of the connection."""
    data = GARBAGE[attempt.work.garbage_sent % len(GARBAGE)]
    attempt.work.garbage_sent += 1
    await attempt.send(data)
    finish(attempt)


MODES: dict[str, Callable[[Attempt], Awaitable[None]]] = {
    "ok": ordinary,
    "die_on_abort": ordinary,
    "rst0": reset_at_once,
    "fin0": finish_at_once,
    "rst": reset_after,
    "fin": finish_after,
    "hang": hang,
    "stall": stall,
    "error": refuse,
    "429": overloaded,
    "poison": poison,
    "garbage": garbage,
}
