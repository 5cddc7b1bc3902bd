"""What a chat message is to a template: text content, decoded tool-call arguments, a digest for every image.

vLLM does the same before it renders (text parts joined by line ends, arguments decoded, null content made empty), so
that the tokens come out as the worker's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from xxhash import xxh3_128_hexdigest

from router.core import Json

Message = Mapping[str, Json]

_TEXT_KINDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""A part's type → the field that holds its text."""


def conditioned(message: Message, *, joins_parts: bool) -> dict[str, Json]:
    """A message as templates expect it; `joins_parts` makes one text of a parts array."""
    ready = dict(message)
    content = ready.get("content")
    if content is None:
        ready["content"] = ""
    elif _is_list(content):
        texts = [part_text(part) for part in content]
        ready["content"] = "\n".join(texts) if joins_parts else [{"type": "text", "text": text} for text in texts]
    calls = ready.get("tool_calls")
    if calls is None:
        ready.pop("tool_calls", None)
    elif _is_list(calls):
        ready["tool_calls"] = [_decoded_call(call) for call in calls]
    return ready


def part_text(part: Json) -> str:
    """What a content part is to the prompt: its text, or for anything else a mark with a digest of the part.

    A worker puts the same placeholder tokens for every image and tells images apart beside the tokens; here the
    digest does that, so that different images differ in both chains.
    """
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return f"<part:{_digest(part)}>"
    kind = str(part.get("type", "text"))
    text = part.get(_TEXT_KINDS.get(kind, ""))
    if isinstance(text, str):
        return text
    return f"<{re.sub(r'[^A-Za-z0-9_]', '', kind)[:32]}:{_digest(part)}>"


def has_calls(message: Message) -> bool:
    """Whether an assistant called tools in this message, in either of OpenAI's two spellings."""
    return bool(message.get("tool_calls") or message.get("function_call"))


def with_calls_as_text(message: Message) -> Message:
    """A message whose calls (names and arguments, no ids) are written behind its content.

    For the key chain, where the template itself leaves calls out: requests that differ in them must differ.
    """
    if not has_calls(message):
        return message
    calls: Json = message.get("tool_calls") or ()
    listed = calls if _is_list(calls) else (calls,)
    functions = [call.get("function", call) if isinstance(call, Mapping) else call for call in listed]
    if message.get("function_call"):
        functions.append(message["function_call"])
    told = [(f.get("name"), f.get("arguments")) if isinstance(f, Mapping) else f for f in functions]
    content = conditioned(message, joins_parts=True)["content"]
    return {**message, "content": f"{content}\n{json.dumps(told, ensure_ascii=False, default=str)}"}


def _decoded_call(call: Json) -> Json:
    """A tool call with its arguments decoded, if they are JSON text of an object."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        decoded = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": decoded}} if isinstance(decoded, dict) else call


def _is_list(value: Json) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _digest(part: Json) -> str:
    return xxh3_128_hexdigest(json.dumps(part, sort_keys=True, default=str).encode())
