"""Anthropic's `cache_control`: where a prompt is marked to be kept, and how many of its tokens that covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from backends.api_errors import BadRequestError
from backends.prompt_ids import PromptReader
from router.core import Json, PromptSource

KEY = "cache_control"
LIFETIMES_SECONDS = {"5m": 300.0, "1h": 3600.0}
KIND = "ephemeral"


class Mark(NamedTuple):
    """The first `messages` messages are to be kept for `ttl_seconds` after each use."""

    messages: int
    ttl_seconds: float


def last_mark(messages: Json) -> Mark | None:
    """The last mark on a message or on a part of one, which covers that whole message; all marks must be sound.

    Anthropic takes several; one wish is what a request has here, and the last mark covers the others.
    """
    found = None
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        for place, holder in _holders(message, f"messages.{index}"):
            if holder.get(KEY) is not None:
                found = Mark(index + 1, _lifetime_seconds(holder[KEY], f"{place}.{KEY}"))
    return found


def unmarked(messages: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """The messages as a template is to see them: a mark is no part of the prompt."""
    return [_without_mark(message) for message in messages]


async def covered_tokens(prompts: PromptReader, source: PromptSource, ids: Sequence[int], messages: int) -> int:
    """How many of the prompt's `ids` stand for its first `messages` messages: those on which both renderings agree.

    0 where the template will not render these messages alone.
    """
    if source.messages is None or messages >= len(source.messages):
        return len(ids)
    head = replace(source, messages=source.messages[:messages], add_generation_prompt=False)
    try:
        head_ids = await prompts.ids(head)
    except BadRequestError:
        return 0
    agreeing = zip(ids, head_ids)  # of different lengths, and that is the point
    return next((at for at, (one, other) in enumerate(agreeing) if one != other), min(len(ids), len(head_ids)))


def _holders(message: Json, place: str) -> list[tuple[str, dict[str, Json]]]:
    """The message and its parts, whatever of them can hold a mark."""
    if not isinstance(message, dict):
        return []
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    places = [(f"{place}.content.{index}", part) for index, part in enumerate(parts) if isinstance(part, dict)]
    return [(place, message), *places]


def _without_mark(message: Mapping[str, Json]) -> Mapping[str, Json]:
    content = message.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and KEY in part for part in content):
        plain = [_without_mark(part) if isinstance(part, dict) else part for part in content]
        message = {**message, "content": plain}
    return {key: value for key, value in message.items() if key != KEY} if KEY in message else message


def _lifetime_seconds(control: Json, place: str) -> float:
    if not isinstance(control, dict) or control.get("type") != KIND:
        raise BadRequestError(f'{place} must be an object with "type": "{KIND}".', param=place)
    lifetime = control.get("ttl") or "5m"
    seconds = LIFETIMES_SECONDS.get(lifetime) if isinstance(lifetime, str) else None
    if seconds is None:
        raise BadRequestError(f"{place}.ttl must be one of {', '.join(LIFETIMES_SECONDS)}.", param=f"{place}.ttl")
    return seconds
