"""What a request of the Responses API asks for: its instructions and input items as the messages a template sees.

As vLLM makes messages of them (entrypoints/openai/responses/utils.py): instructions are the system message, calls join
the assistant's message before them, outputs of calls are tool messages. The same text by chat gives the same prompt.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.body_fields import Asked, Fields, check_content, check_message, objects, optional
from gateway.dialects.openai_requests import template_arguments
from gateway.errors import InvalidRequest
from router.core import Json, PromptSource

_CALL, _OUTPUT, _REASONING = "function_call", "function_call_output", "reasoning"
_IN_FUNCTION: Final = ("name", "description", "parameters", "strict")


def read_response(fields: Fields) -> Asked:
    """`instructions` and `input`; raises `InvalidRequest` for what would need an answer kept at one worker."""
    _refuse_stored(fields)
    messages: list[dict[str, Json]] = []
    if instructions := optional(fields, "instructions", str):
        messages.append({"role": "system", "content": instructions})
    messages += _messages(fields.get("input"))
    source = PromptSource(
        messages=messages,
        tools=chat_tools(objects(fields, "tools") or []) or None,
        template_arguments=template_arguments(fields),
    )
    max_tokens = optional(fields, "max_output_tokens", int)
    return Asked(source, max_tokens=max_tokens, user=optional(fields, "user", str))


def chat_tools(tools: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Function tools in chat's shape; the others, which a worker runs itself, as they are."""
    return [_chat_tool(tool) if tool.get("type") == "function" and "function" not in tool else tool for tool in tools]


def _chat_tool(tool: dict[str, Json]) -> dict[str, Json]:
    return {"type": "function", "function": {name: tool[name] for name in _IN_FUNCTION if name in tool}}


def _refuse_stored(fields: Fields) -> None:
    """Answers that a worker keeps are known to that worker only, and to no tenant: they are not spoken here."""
    if fields.get("previous_response_id") is not None:
        raise InvalidRequest(
            "`previous_response_id` is not supported: answers are not kept; send the whole conversation as `input`.",
            param="previous_response_id",
        )
    if optional(fields, "background", bool):
        raise InvalidRequest(
            "`background` is not supported: answers are not kept; ask with `stream` instead.", param="background"
        )


def _messages(given: Json) -> list[dict[str, Json]]:
    if type(given) is str:
        return [{"role": "user", "content": given}]
    if type(given) is not list or not given:
        raise InvalidRequest("`input` must be a string or an array with at least one item.", param="input")
    messages: list[dict[str, Json]] = []
    for index, item in enumerate(given):
        _take(item, messages, f"input[{index}]")
    return messages


def _take(item: Json, messages: list[dict[str, Json]], place: str) -> None:
    if type(item) is not dict:
        raise InvalidRequest(f"`{place}` must be an object.", param=place)
    kind = item.get("type")
    if kind == _CALL:
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        _assistant(messages, "tool_calls").setdefault("tool_calls", []).append(call)
    elif kind == _OUTPUT:
        check_content(item.get("output"), f"{place}.output")
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")})
    elif kind == _REASONING:
        _assistant(messages, "reasoning")["reasoning"] = _first_text(item.get("content") or item.get("summary"))
    elif kind in (None, "message"):
        check_message(item, place)
        _say(item, messages)
    # Other items mean something to the worker alone; they follow what the prompt begins with.


def _say(item: dict[str, Json], messages: list[dict[str, Json]]) -> None:
    role, content = item["role"], item.get("content")
    if role != "assistant":
        messages.append({"role": role, "content": content})
        return
    text = content if type(content) is str else _first_text(content)
    _assistant(messages, "content")["content"] = text


def _assistant(messages: list[dict[str, Json]], name: str) -> dict[str, Json]:
    """The assistant's message that `name` goes into: the last one while it lacks it (calls may be several)."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant" or (name in last and name != "tool_calls"):
        messages.append({"role": "assistant"})
    return messages[-1]


def _first_text(parts: Json) -> Any:
    first = parts[0] if type(parts) is list and parts else parts
    text = first.get("text") if type(first) is dict else first
    return text if type(text) is str else ""
