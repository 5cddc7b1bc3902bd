"""Requests and texts for the tests of the fold rules."""

from __future__ import annotations

from typing import Any

from router.normalise import DEFAULT, Folded, FoldRules, fold_messages

BODY = "You are the support helper of a small shop."


def fold_system(text: str, rules: FoldRules = DEFAULT) -> Folded:
    """A request with `text` as its system prompt, folded."""
    return fold_messages([{"role": "system", "content": text}], None, rules)


def folded_text(text: str, rules: FoldRules = DEFAULT) -> str:
    """What the key reads in place of a system prompt."""
    messages = fold_system(text, rules).messages
    return str(messages[0]["content"]) if messages else ""


def build_call(call_id: str = "call_x", arguments: Any = "{}", name: str = "alpha") -> dict[str, Any]:
    """An assistant's tool call."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def build_tool(name: str = "alpha", **schema: Any) -> dict[str, Any]:
    """A tool with a parameter schema."""
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **schema}}}
