"""Folds a whole request for the routing key: which texts are system text, and what else in it is volatile.

Nothing that was given is modified. What nothing folds in is the very object that was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from router.core import Fold, Json
from router.messages import part_text
from router.normalise.canonical import canonical_arguments, canonical_json, canonical_tools
from router.normalise.edits import Span
from router.normalise.labels import template_date
from router.normalise.rules import FoldRules
from router.normalise.system_text import FoldedText, fold_system_text

Message = Mapping[str, Any]

SYSTEM_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Folded:
    """A request as the routing key reads it; `messages` and `tools`, or `prompt`, are set as in what was folded.

    A fold in a message's content has its `message` (and `part`, in a parts array). A folded id or arguments text of
    a tool call covers that string. Folds of tools have no message; their positions are indices in `tools`.
    """

    messages: Sequence[Message] = ()
    tools: Sequence[Json] | None = None
    prompt: str | None = None
    folds: tuple[Fold, ...] = ()
    changed: bool = False


def fold_messages(messages: Sequence[Message], tools: Sequence[Json] | None, rules: FoldRules) -> Folded:
    """Fold a chat request. A message's `name` is written into its key text, since most templates leave names out."""
    folds: list[Fold] = []
    ids: dict[str, str] = {}
    ready: list[Message] = []
    for index, message in enumerate(messages):
        folded = _fold_message(message, index, rules, ids, folds)
        if folded is not None:
            ready.append(folded)
    key_tools = _fold_tools(tools, rules, folds) if tools else tools
    same = len(ready) == len(messages) and all(new is old for new, old in zip(ready, messages, strict=True))
    changed = not same or key_tools is not tools
    return Folded(messages if same else ready, key_tools, None, tuple(folds), changed)


def fold_prompt(text: str, user_marker: str | None, rules: FoldRules) -> Folded:
    """Fold a completion prompt: what stands before the first `user_marker` (the text that opens a user turn) is
    system text; without one only a template's own date folds."""
    end = text.find(user_marker) if user_marker else -1
    if end < 0:
        edits = template_date(text) if "template_date" in rules else []
        head, spans = text, [Span(edit.rule, edit.start, edit.end) for edit in edits]
        for edit in edits:
            head = text[: edit.start] + edit.replacement + text[edit.end :]
        return _folded_prompt(text, head, spans)
    system = fold_system_text(text[:end], rules, is_whole=False)
    return _folded_prompt(text, system.text + text[end:] if system.spans else text, system.spans)


def _folded_prompt(text: str, folded: str, spans: Sequence[Span]) -> Folded:
    folds = tuple(Fold(rule, None, start, end) for rule, start, end in spans)
    return Folded(prompt=folded if folds else text, folds=folds, changed=bool(folds))


def _fold_message(
    message: Message, index: int, rules: FoldRules, ids: dict[str, str], folds: list[Fold]
) -> Message | None:
    """The message as the key reads it, or None for one that was nothing but a client's header line."""
    ready = message
    if message.get("role") in SYSTEM_ROLES and rules:
        content = _fold_content(message.get("content"), index, rules, folds)
        if content is not message.get("content"):
            if not content and any(fold.rule == "client_attribution" and fold.message == index for fold in folds):
                return None
            ready = {**message, "content": content}
    if message.get("tool_calls") or message.get("tool_call_id") or message.get("function_call"):
        ready = _fold_calls(ready, index, rules, ids, folds)
    return _named(ready) if message.get("name") and message.get("role") != "tool" else ready


def _fold_content(content: Json, index: int, rules: FoldRules, folds: list[Fold]) -> Json:
    if isinstance(content, str):
        folded = fold_system_text(content, rules)
        folds += [Fold(rule, index, start, end) for rule, start, end in folded.spans]
        return folded.text if folded.spans else content
    if not isinstance(content, Sequence):
        return content
    texts = [part_text(part) for part in content]
    folded = fold_system_text("\n".join(texts), rules)
    folds += _part_folds(folded, texts, index)
    return folded.text if folded.spans else content


def _part_folds(folded: FoldedText, texts: Sequence[str], index: int) -> list[Fold]:
    """Spans of joined parts as folds within each part."""
    folds: list[Fold] = []
    offset = 0
    for part, text in enumerate(texts):
        for rule, start, end in folded.spans:
            first, last = max(start - offset, 0), min(end - offset, len(text))
            if first < last or (start == end and 0 <= start - offset <= len(text)):
                folds.append(Fold(rule, index, first, last, part))
        offset += len(text) + 1
    return folds


def _named(message: Message) -> Message:
    """The message with its `name` behind its text."""
    content, mark = message.get("content"), f"\n<name:{message['name']}>"
    if isinstance(content, Sequence) and not isinstance(content, str):
        return {**message, "content": [*content, {"type": "text", "text": mark}]}
    return {**message, "content": f"{content or ''}{mark}"}


def _fold_calls(message: Message, index: int, rules: FoldRules, ids: dict[str, str], folds: list[Fold]) -> Message:
    """Tool calls with ids that are numbers in order and canonical arguments; a result's id follows its call's."""
    ready = dict(message)
    calls = message.get("tool_calls")
    if isinstance(calls, Sequence) and not isinstance(calls, str):
        folded = [_fold_call(call, index, rules, ids, folds) for call in calls]
        if any(new is not old for new, old in zip(folded, calls, strict=True)):
            ready["tool_calls"] = folded
    if "tool_call_ids" in rules and isinstance(message.get("tool_call_id"), str):
        ready["tool_call_id"] = _fold_id(message["tool_call_id"], index, ids, folds)
    if isinstance(message.get("function_call"), Mapping):
        ready["function_call"] = _fold_function(message["function_call"], index, rules, folds)
    return message if all(ready[key] is value for key, value in message.items()) else ready


def _fold_call(call: Json, index: int, rules: FoldRules, ids: dict[str, str], folds: list[Fold]) -> Json:
    if not isinstance(call, Mapping):
        return call
    ready = dict(call)
    if "tool_call_ids" in rules and isinstance(call.get("id"), str):
        ready["id"] = _fold_id(call["id"], index, ids, folds)
    if isinstance(call.get("function"), Mapping):
        ready["function"] = _fold_function(call["function"], index, rules, folds)
    return call if all(ready[key] is value for key, value in call.items()) else ready


def _fold_id(given: str, index: int, ids: dict[str, str], folds: list[Fold]) -> str:
    """The id's number in order of appearance, in nine characters, as Mistral's templates demand."""
    number = ids.setdefault(given, f"call{len(ids) % 100000:05d}")
    if number != given:
        folds.append(Fold("tool_call_ids", index, 0, len(given)))
    return given if number == given else number


def _fold_function(function: Message, index: int, rules: FoldRules, folds: list[Fold]) -> Message:
    given = function.get("arguments")
    if "tool_arguments" not in rules or not isinstance(given, str | Mapping):
        return function
    arguments = canonical_arguments(given)
    if arguments == given and (isinstance(given, str) or list(arguments) == list(given)):
        return function
    length = len(given) if isinstance(given, str) else 0
    folds.append(Fold("tool_arguments", index, 0, length))
    return {**function, "arguments": arguments}


def _fold_tools(tools: Sequence[Json], rules: FoldRules, folds: list[Fold]) -> Sequence[Json]:
    """Sorted tools with sorted schemas; the same object when they already were."""
    by_name, by_key = "tool_order" in rules, "schema_key_order" in rules
    if not (by_name or by_key):
        return tools
    ready = canonical_tools(tools, by_name=by_name, by_key=by_key)
    alone = canonical_tools(tools, by_name=False, by_key=by_key)
    if [canonical_json(tool) for tool in ready] != [canonical_json(tool) for tool in alone]:
        folds.append(Fold("tool_order", None, 0, len(tools)))
    reordered = [i for i, (new, old) in enumerate(zip(alone, tools, strict=True)) if _spelled(new) != _spelled(old)]
    if reordered:
        folds.append(Fold("schema_key_order", None, reordered[0], reordered[-1] + 1))
    return ready if folds and folds[-1].message is None else tools


def _spelled(tool: Json) -> str:
    return repr(tool)
