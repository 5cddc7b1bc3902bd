"""Request bodies made of a trace: a text for each block id, as long as the block has tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import shake_128
from typing import NamedTuple

from bench.live.workers import MODEL
from router.replay.core import TraceRequest

LETTERS = b"eeeeeeettttttaaaaaooooooiiiiinnnnnsssssshhhhhrrrrrddddllllccuummwwffggyyppbbvvkk" + b" " * 24
TEXTS_KEPT = 50_000


class Planned(NamedTuple):
    """A request to be sent; times in trace seconds, as in `TraceRequest`."""

    number: int
    at_seconds: float
    session: int
    think_seconds: float
    body: bytes


def plan(requests: Iterable[TraceRequest], time_scale: float = 1.0, turns: bool = False) -> list[Planned]:
    """The bodies of `requests`, ready to be sent; `time_scale` stretches the time between them.

    With `turns` a prompt is a system text and then a message of each author in turn, else one message of a user.
    """
    first = None
    planned = []
    for request in requests:
        first = request.at_seconds if first is None else first
        at_seconds = (request.at_seconds - first) * time_scale
        think = request.think_seconds * time_scale
        planned.append(Planned(request.number, at_seconds, request.session, think, _body(request, turns)))
    return planned


def text_of(blocks: Sequence[bytes], block_tokens: int, tokens: int) -> str:
    """A prompt of `tokens` characters whose blocks are these; a last one that is not listed gets a text of its own."""
    texts = [block_text(name, block_tokens) for name in blocks[: -(-tokens // block_tokens)]]
    missing = tokens - len(texts) * block_tokens
    if missing > 0:
        texts.append(block_text(b"tail" + (blocks[-1] if blocks else b""), missing))
    return "".join(texts)[:tokens]


@lru_cache(TEXTS_KEPT)
def block_text(name: bytes, characters: int) -> str:
    """Letters and spaces that look a little like words; the same for the same name."""
    table = bytes(LETTERS[byte % len(LETTERS)] for byte in range(256))
    return shake_128(name).digest(characters).translate(table).decode()


def _body(request: TraceRequest, turns: bool) -> bytes:
    prompt = request.prompt
    text = text_of(prompt.exact_blocks, prompt.block_tokens, prompt.tokens)
    asked = {
        "model": MODEL,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": max(1, request.output_tokens),
        "messages": _turns(text, prompt.block_tokens) if turns else [{"role": "user", "content": text}],
    }
    return json.dumps(asked).encode()


HEAD_BLOCKS = 16
TURN_BLOCKS = 4


def _turns(text: str, block_tokens: int) -> list[dict[str, str]]:
    """Cut at the same places whatever follows, so that a longer prompt of a session begins with the shorter one."""
    head, step = HEAD_BLOCKS * block_tokens, TURN_BLOCKS * block_tokens
    cuts = [text[:head], *(text[at : at + step] for at in range(head, len(text), step))]
    roles = ("user", "assistant")
    return [{"role": roles[n % 2 - 1] if n else "system", "content": cut} for n, cut in enumerate(cuts)]
