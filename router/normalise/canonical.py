"""Canonical forms of what is JSON in a request: tools, their schemas, and the arguments of earlier tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from router.core import Json

_DATA = frozenset({"default", "const", "enum", "examples", "example"})
"""Schema keywords whose values are data: `required` in them is no list of names."""

_EXACT_FLOAT = 2.0**53


def canonical_json(value: Json) -> str:
    """One text for all spellings of a JSON value: sorted keys, no spacing, no escapes, 3.0 as 3."""
    return json.dumps(plain_numbers(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def plain_numbers(value: Json) -> Json:
    """`value` with whole floats as integers; the same object where there are none."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _EXACT_FLOAT else value
    if isinstance(value, Mapping):
        mapped = {key: plain_numbers(item) for key, item in value.items()}
        return mapped if any(mapped[key] is not item for key, item in value.items()) else value
    if isinstance(value, (list, tuple)):
        items = [plain_numbers(item) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def canonical_arguments(arguments: Json) -> Json:
    """A tool call's arguments in canonical form: JSON text stays text, an object stays one; else what was given.

    Text that is no JSON, or repeats a key (nobody knows which value counts), is left alone.
    """
    if isinstance(arguments, Mapping):
        return _sorted(plain_numbers(arguments))
    if not isinstance(arguments, str) or not arguments.lstrip().startswith(("{", "[")):
        return arguments
    try:
        return canonical_json(json.loads(arguments, object_pairs_hook=_without_repeats))
    except (ValueError, RecursionError):
        return arguments


def canonical_tools(tools: Sequence[Json], *, by_name: bool = True, by_key: bool = True) -> list[Json]:
    """Copies of `tools`, sorted by function name and then by their text, with sorted keys and `required` names."""
    ready = [_schema(plain_numbers(tool)) if by_key else tool for tool in tools]
    return sorted(ready, key=lambda tool: (tool_name(tool), canonical_json(tool))) if by_name else ready


def tool_name(tool: Json) -> str:
    """The function name of a tool, or the name or type of one that is no function."""
    if not isinstance(tool, Mapping):
        return ""
    function = tool.get("function")
    named = function if isinstance(function, Mapping) else tool
    return str(named.get("name") or tool.get("type") or "")


def tools_digest_text(tools: Sequence[Json] | None) -> str:
    """The text that tells two sets of tools apart in a routing key; empty where there are no tools."""
    return canonical_json(canonical_tools(tools)) if tools else ""


def _schema(value: Json, *, is_data: bool = False) -> Json:
    if isinstance(value, Mapping):
        return {key: _keyword(key, value[key], is_data=is_data) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [_schema(item, is_data=is_data) for item in value]
    return value


def _keyword(key: str, value: Json, *, is_data: bool) -> Json:
    if key == "required" and not is_data and isinstance(value, (list, tuple)):
        return sorted(value, key=str)
    return _schema(value, is_data=is_data or key in _DATA)


def _sorted(value: Json) -> Json:
    return _schema(value, is_data=True)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object repeats a key")
    return found
