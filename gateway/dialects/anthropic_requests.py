"""What Anthropic's Messages API asks for: its system text and content blocks as the messages a template sees.

As vLLM makes messages of them (entrypoints/anthropic/serving.py), so that the same text by chat gives the same prompt.
`cache_control` breakpoints are passed on and not obeyed: a prefix cache keeps every block, marked or not.
"""

from __future__ import annotations

import json
from typing import Final

from gateway.body_fields import Asked, Fields, check_content, check_messages, objects, optional
from gateway.dialects.openai_requests import template_arguments
from gateway.errors import InvalidRequest
from router.core import Json, PromptSource

_ATTRIBUTION: Final = "x-anthropic-billing-header"
"""Begins the block in which a coding client names the request; vLLM leaves it out."""

_ROLES: Final = {"ctx": "user", "msg": "user"}
Message = dict[str, Json]


def read_messages(fields: Fields) -> Asked:
    """`system`, `messages` and `tools`; the user is `metadata.user_id`."""
    metadata = optional(fields, "metadata", dict) or {}
    source = PromptSource(
        messages=_messages(fields),
        tools=[_chat_tool(tool) for tool in objects(fields, "tools") or []] or None,
        template_arguments=template_arguments(fields),
    )
    return Asked(source, max_tokens=optional(fields, "max_tokens", int), user=_user(metadata))


def _user(metadata: Fields) -> str | None:
    user = metadata.get("user_id")
    if user is None or type(user) is str:
        return user
    raise InvalidRequest("`metadata.user_id` must be a string.", param="metadata.user_id")


def _messages(fields: Fields) -> list[Message]:
    given = check_messages(fields)
    check_content(fields.get("system"), "system")
    system = _texts(fields.get("system"))
    for message in given:
        if message["role"] == "system":
            system += _texts(message.get("content"))
    messages: list[Message] = [{"role": "system", "content": "".join(system)}] if system else []
    for message in given:
        if message["role"] != "system":
            _take(message, messages)
    return messages


def _texts(content: Json) -> list[str]:
    if type(content) is str:
        return [content] if content else []
    texts = [block["text"] for block in _blocks(content) if type(block.get("text")) is str]
    return [text for text in texts if text and not text.startswith(_ATTRIBUTION)]


def _blocks(content: Json) -> list[Message]:
    """The blocks of a content that is no string; a string among them is a text block."""
    parts = content if type(content) is list else []
    return [part if type(part) is dict else {"type": "text", "text": part} for part in parts]


def _take(message: Message, messages: list[Message]) -> None:
    """Append what a template sees of one message: results of tools first, as messages of their own."""
    role, content = _ROLES.get(message["role"], message["role"]), message.get("content")
    if type(content) is str or content is None:
        messages.append({"role": role, "content": content})
        return
    parts: list[Message] = []
    said: Message = {"role": role}
    for block in _blocks(content):
        _take_block(block, said, parts, messages)
    if parts:
        alone = len(parts) == 1 and parts[0]["type"] == "text"
        said["content"] = parts[0]["text"] if alone else parts
    if role != "user" or "content" in said:
        messages.append(said)


def _take_block(block: Message, said: Message, parts: list[Message], messages: list[Message]) -> None:
    kind = block.get("type")
    if kind == "text" and block.get("text"):
        parts.append({"type": "text", "text": block["text"]})
    elif kind == "image":
        parts.append(_image(block.get("source")))
    elif kind == "thinking":
        said["reasoning"] = f"{said.get('reasoning', '')}{block.get('thinking') or ''}"
    elif kind == "tool_use":
        function = {"name": block.get("name") or "", "arguments": json.dumps(block.get("input") or {})}
        said.setdefault("tool_calls", []).append({"id": block.get("id"), "type": "function", "function": function})
    elif kind == "tool_result" and said["role"] == "user":
        messages.append({"role": "tool", "tool_call_id": block.get("tool_use_id") or "", "content": _result(block)})
        images = [part for part in _blocks(block.get("content")) if part.get("type") == "image"]
        if images:
            messages.append({"role": "user", "content": [_image(part.get("source")) for part in images]})


def _result(block: Message) -> str:
    content = block.get("content")
    if type(content) is str:
        return content
    return "\n".join(str(part.get("text", "")) for part in _blocks(content) if part.get("type") == "text")


def _image(source: Json) -> Message:
    source = source if type(source) is dict else {}
    url = source.get("url", "")
    if source.get("type") != "url":
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _chat_tool(tool: Message) -> Message:
    function = {"name": tool.get("name"), "description": tool.get("description"), "parameters": _schema(tool)}
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def _schema(tool: Message) -> Json:
    schema = tool.get("input_schema")
    return {**schema, "type": schema.get("type", "object")} if type(schema) is dict else schema
