"""From plain data to typed settings; what does not fit is told with its exact place and the nearest right word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from gateway.config_source import ConfigError, Path, Source, did_you_mean
from gateway.settings import Config

_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at `(?:key` in `)?\$(?P<path>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>\w+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")
_JSON_WORD = re.compile(r"\b(?:object|array|null)\b")
_YAML_WORDS = {"object": "mapping", "array": "list", "null": "nothing"}
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(?P<field>[^`]*)`")


def convert(source: Source) -> Config:
    """The typed settings, or the first mistake as a `ConfigError`."""
    try:
        return msgspec.convert(source.data, Config)
    except msgspec.ValidationError as error:
        raise _explained(str(error), source) from None


def _explained(message: str, source: Source) -> ConfigError:
    match = _MESSAGE.fullmatch(message)
    what, steps = (match["what"], match["path"] or "") if match else (message, "")
    path = _exact_path(steps, source.data, message)
    field = _FIELD.match(what)
    if field is None:
        return source.error(_lowered(what), path, _enum_hint(what, path))
    name = field["field"]
    if "missing" in what:
        return source.error(f"the field `{name}` is missing", path, f"add `{name}:`")
    return source.error(f"unknown field `{name}`", (*path, name), did_you_mean(name, fields_at(path)))


def _lowered(what: str) -> str:
    """msgspec speaks of objects and arrays; YAML has mappings and lists."""
    told = re.sub(r"`[^`]*`", lambda quoted: _JSON_WORD.sub(lambda word: _YAML_WORDS[word[0]], quoted[0]), what)
    return told[0].lower() + told[1:]


def _enum_hint(what: str, path: Path) -> str:
    wrong = re.match(r"Invalid enum value '(.*)'", what)
    if wrong is None:
        return ""
    kind = _type_at(path)
    values = kind.values if isinstance(kind, inspect.LiteralType) else ()
    return did_you_mean(wrong[1], (str(value) for value in values))


def _exact_path(steps: str, data: Any, message: str) -> Path:
    """msgspec writes `[...]` for any key of a mapping: find which one, by looking at each entry alone."""
    path: Path = ()
    for step in _STEP.finditer(steps):
        if step["field"] is not None:
            path = (*path, step["field"])
        elif step["index"] is not None:
            path = (*path, int(step["index"]))
        else:
            path = (*path, next(_guilty_keys(data, path, message), "..."))
    return path


def _guilty_keys(data: Any, path: Path, message: str) -> Iterator[str]:
    for key in _at(data, path):
        try:
            msgspec.convert(_with_only(data, path, key), Config)
        except msgspec.ValidationError as error:
            if str(error) == message:
                yield key


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def _with_only(data: Any, path: Path, key: str) -> Any:
    """A copy of `data` whose mapping at `path` has the one entry `key`."""
    if not path:
        return {key: data[key]}
    copied: Any = list(data) if isinstance(data, list) else dict(data)
    copied[path[0]] = _with_only(data[path[0]], path[1:], key)
    return copied


def fields_at(path: Path) -> list[str]:
    """The fields that the mapping at `path` may have; empty where it is no section."""
    kind = _type_at(path)
    return [field.encode_name for field in kind.fields] if isinstance(kind, inspect.StructType) else []


def _type_at(path: Path) -> inspect.Type | None:
    kind: inspect.Type | None = _plain(inspect.type_info(Config))
    for step in path:
        kind = _plain(_inner(kind, step))
    return kind


def _inner(kind: inspect.Type | None, step: str | int) -> inspect.Type | None:
    if isinstance(kind, inspect.StructType):
        return next((field.type for field in kind.fields if field.encode_name == step), None)
    if isinstance(kind, inspect.DictType):
        return kind.value_type
    return kind.item_type if isinstance(kind, inspect.ListType) else None


def _plain(kind: inspect.Type | None) -> inspect.Type | None:
    """Without its description, and of several possible types the one with something inside."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        inside = [_plain(one) for one in kind.types]
        wanted = (inspect.StructType, inspect.ListType, inspect.DictType)
        return next((one for one in inside if isinstance(one, wanted)), inside[0])
    return kind
