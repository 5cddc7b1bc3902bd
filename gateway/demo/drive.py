"""Drives the load through the OpenAI API, streaming, and notes what came back and when."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from xxhash import xxh3_64_intdigest

from gateway.demo.load import ANSWER_TOKENS, Conversation, Message

TURN_SECONDS = 120.0
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered (or failed) request; times in seconds, tokens as the worker reported them."""

    conversation: str
    text: str
    ttft_seconds: float
    total_seconds: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    worker: str | None
    reason: str | None
    error: str | None = None


@dataclass(slots=True)
class _Stream:
    """What has been read of one answer so far."""

    text: str = ""
    first_at: float | None = None
    usage: Mapping[str, Any] | None = None
    error: str | None = None
    done: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """The API under test: where it is, which model, and each tenant's key."""

    url: str
    model: str
    keys: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pace:
    """How people come and go: seconds between two first turns, and seconds from an answer to the next turn.

    Thinking takes from half to one and a half of `think_seconds`: in lockstep, round robin would by chance always or
    never meet the same worker again.
    """

    arrival_seconds: float
    think_seconds: float


async def drive(
    target: Target, load: Sequence[Conversation], pace: Pace, progress: Callable[[int], None]
) -> list[Answer]:
    """Run the conversations side by side, each waiting for its answer before its next turn; `progress` gets counts."""
    answers: list[Answer] = []

    def note(answer: Answer) -> None:
        answers.append(answer)
        progress(len(answers))

    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=TURN_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as talks:
        for number, conversation in enumerate(load):
            waits = _waits(pace, conversation.name, number)
            talks.create_task(_converse(session, target, conversation, waits, note))
    return answers


def _waits(pace: Pace, name: str, number: int) -> Iterator[float]:
    """What a conversation waits before each of its turns, seconds; the same in every run."""
    yield number * pace.arrival_seconds
    for turn in itertools.count(1):
        yield pace.think_seconds * (0.5 + xxh3_64_intdigest(f"{name} {turn}".encode()) / 2**64)


async def _converse(
    session: aiohttp.ClientSession,
    target: Target,
    conversation: Conversation,
    waits: Iterator[float],
    note: Callable[[Answer], None],
) -> None:
    said: list[str] = []
    for _ in conversation.turns:
        await asyncio.sleep(next(waits))
        answer = await _ask(session, target, conversation, conversation.messages(said))
        note(answer)
        said.append(answer.text)


async def _ask(
    session: aiohttp.ClientSession, target: Target, conversation: Conversation, messages: list[Message]
) -> Answer:
    body = {
        "model": target.model,
        "messages": messages,
        "max_tokens": ANSWER_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"authorization": f"Bearer {target.keys[conversation.tenant]}", "x-homing-debug": "1"}
    started = time.perf_counter()
    stream, worker, reason = _Stream(), None, None
    try:
        async with session.post(f"{target.url}/v1/chat/completions", json=body, headers=headers) as response:
            worker, reason = response.headers.get("x-homing-backend"), response.headers.get("x-homing-reason")
            await _read(response, stream)
    except (aiohttp.ClientError, TimeoutError) as error:
        stream.error = type(error).__name__
    return _answer(conversation, stream, started, worker, reason)


async def _read(response: aiohttp.ClientResponse, stream: _Stream) -> None:
    if response.status != 200:
        stream.error = f"HTTP {response.status}"
        return
    async for line in response.content:
        if line.startswith(b"data:"):
            _take(stream, line[5:].strip())


def _take(stream: _Stream, data: bytes) -> None:
    if data == b"[DONE]":
        stream.done = True
        return
    event = json.loads(data)
    stream.usage = event.get("usage") or stream.usage
    if "error" in event:
        stream.error = str(event["error"].get("code"))
    for choice in event.get("choices", ()):
        piece = choice["delta"].get("content")
        if piece:
            stream.first_at = stream.first_at or time.perf_counter()
            stream.text += piece


def _answer(
    conversation: Conversation, stream: _Stream, started: float, worker: str | None, reason: str | None
) -> Answer:
    ended = time.perf_counter()
    usage = stream.usage or {}
    error = stream.error or _incomplete(stream)
    return Answer(
        conversation=conversation.name,
        text=stream.text,
        ttft_seconds=(stream.first_at or ended) - started,
        total_seconds=ended - started,
        prompt_tokens=usage.get("prompt_tokens", 0),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        output_tokens=usage.get("completion_tokens", 0),
        worker=worker,
        reason=reason,
        error=error,
    )


def _incomplete(stream: _Stream) -> str | None:
    if not stream.done:
        return "stream ended without [DONE]"
    return None if stream.usage else "no usage reported"
