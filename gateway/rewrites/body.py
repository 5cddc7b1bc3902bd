"""Rewrites of a whole request body: only the texts that a rule is about change, every other value keeps its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from gateway.rewrites.code import clean_code
from gateway.rewrites.rules import Rewrites
from gateway.rewrites.system_text import rewrite_system_text
from router.core import Json
from router.normalise.canonical import tool_name
from router.normalise.edits import Layers

SYSTEM_ROLES: Final = frozenset(("system", "developer"))
SYSTEM_FIELDS: Final = ("system", "instructions")
"""System text outside of the messages: Anthropic's Messages, OpenAI's Responses."""

_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class Applied(NamedTuple):
    """One change: the rule, the field, and where in the original (code points of a text, indices of a list)."""

    rule: str
    place: str
    start: int
    end: int


class Rewritten(NamedTuple):
    """The body for the worker, the very bytes that came where nothing applied, and what did."""

    body: bytes
    applied: tuple[Applied, ...]


class _Head(msgspec.Struct):
    role: Json = None
    type: Json = None
    text: Json = None
    cache_control: Json = None


_HEAD: Final = msgspec.json.Decoder(_Head)


def rewrite_body(body: bytes, rewrites: Rewrites) -> Rewritten:
    """Apply a tenant's rewrites to a request that was parsed and found good."""
    work = _Work(rewrites)
    fields = _RAW.decode(body)
    changed = dict(work.changes(fields))
    if not changed or not work.applied:
        return Rewritten(body, ())
    fields |= changed
    return Rewritten(_encode(fields), tuple(work.applied))


class _Work:
    """One body under way."""

    def __init__(self, rewrites: Rewrites) -> None:
        self._rewrites = rewrites
        self.applied: list[Applied] = []

    def changes(self, fields: dict[str, msgspec.Raw]) -> Iterator[tuple[str, msgspec.Raw]]:
        """The top-level fields that change, with their new values."""
        for name in ("messages", "input"):
            if _is_list(fields.get(name)) and (messages := self._messages(fields[name], name)) is not None:
                yield name, messages
        for name in SYSTEM_FIELDS:
            if name in fields and (content := self._content(fields[name], name)) is not None:
                yield name, content
        if "tool_order" in self._rewrites.names and _is_list(fields.get("tools")):
            tools = self._tools(fields["tools"])
            if tools is not None:
                yield "tools", tools
        if "prompt" in fields and self._rewrites.code and (prompt := self._prompt(fields["prompt"])) is not None:
            yield "prompt", prompt

    # Chat

    def _messages(self, raw: msgspec.Raw, place: str) -> msgspec.Raw | None:
        ready: list[msgspec.Raw] = []
        changed = False
        messages = _RAWS.decode(raw)
        for index, message in enumerate(messages):
            new = self._message(message, f"{place}[{index}].content")
            changed = changed or new is not message
            if new is not None:
                ready.append(new)
        return msgspec.Raw(_encode(ready)) if changed and ready else None

    def _message(self, message: msgspec.Raw, place: str) -> msgspec.Raw | None:
        """The message, rewritten where it is system text; None for one that held nothing but a client's line."""
        head = _head(message)
        if head is None or not isinstance(head.role, str) or head.role not in SYSTEM_ROLES:
            return message
        fields = _RAW.decode(message)
        content = self._content(fields["content"], place) if "content" in fields else None
        if content is None:
            return message
        if bytes(content) in (b'""', b"[]"):
            return None
        return msgspec.Raw(_encode(fields | {"content": content}))

    def _content(self, raw: msgspec.Raw, place: str) -> msgspec.Raw | None:
        """A text, or parts of which some are text; None when nothing changes."""
        if _is_list(raw):
            return self._parts(raw, place)
        text = msgspec.json.decode(raw)
        new = self._text(text, place) if isinstance(text, str) else text
        return None if new == text else msgspec.Raw(_encode(new))

    def _parts(self, raw: msgspec.Raw, place: str) -> msgspec.Raw | None:
        ready: list[msgspec.Raw] = []
        changed = False
        for index, part in enumerate(_RAWS.decode(raw)):
            head = _head(part)
            text = head.text if head is not None else None
            new = self._text(text, f"{place}[{index}]") if isinstance(text, str) else text
            if new == text:
                ready.append(part)
                continue
            changed = True
            if new:
                ready.append(msgspec.Raw(_encode(_RAW.decode(part) | {"text": msgspec.Raw(_encode(new))})))
        return msgspec.Raw(_encode(ready)) if changed else None

    def _text(self, text: str, place: str) -> str:
        return self._note(rewrite_system_text(text, self._rewrites.names), place)

    # Tools and code

    def _tools(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        tools = _RAWS.decode(raw)
        heads = [_head(tool) for tool in tools]
        if any(head is None or head.cache_control is not None for head in heads):
            return None
        ordered = sorted(tools, key=lambda tool: tool_name(msgspec.json.decode(tool)))
        if ordered == tools:
            return None
        self.applied.append(Applied("tool_order", "tools", 0, len(tools)))
        return msgspec.Raw(_encode(ordered))

    def _prompt(self, raw: msgspec.Raw) -> msgspec.Raw | None:
        prompt = msgspec.json.decode(raw)
        if isinstance(prompt, str):
            new: Json = self._code(prompt, "prompt")
        elif isinstance(prompt, list) and all(isinstance(item, str) for item in prompt):
            new = [self._code(item, f"prompt[{index}]") for index, item in enumerate(prompt)]
        else:
            return None
        return None if new == prompt else msgspec.Raw(_encode(new))

    def _code(self, text: str, place: str) -> str:
        layers = Layers(text)
        for language, rules in self._rewrites.code_rules().items():
            layers.add(clean_code(layers.text, language, rules))
        return self._note(layers, place)

    def _note(self, layers: Layers, place: str) -> str:
        self.applied += [Applied(rule, place, start, end) for rule, start, end in layers.spans()]
        return layers.text


def _is_list(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(memoryview(raw)[:1]) == b"["


def _head(raw: msgspec.Raw) -> _Head | None:
    try:
        return _HEAD.decode(raw)
    except msgspec.DecodeError:
        return None
