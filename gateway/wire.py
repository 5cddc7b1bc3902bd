"""What the gateway reads of a request and of its usage, and how the forwarded body is made.

A body is parsed once, strictly. Values the gateway has no opinion on are never read for meaning: when a field has to
be added, the top level is taken apart as raw bytes and put together again, so every value travels byte-exact.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.errors import InvalidRequest
from router.core import Json, PromptSource

MAX_DEPTH: Final = 64
"""Deepest nesting of a request body, the outermost object being 1."""

DECIDED: Final = frozenset((
    "model", "messages", "prompt", "stream", "stream_options", "cache_salt", "vllm_xargs", "tools", "max_tokens",
    "max_completion_tokens", "user", "session_id", "prompt_cache_key", "add_generation_prompt", "chat_template_kwargs",
    "documents",
))  # fmt: skip
"""Keys the gateway decides on; a second one of the same name is refused, whatever its spelling."""

PARTITION: Final = "cache_partition"
"""The key of `vllm_xargs` that names a share of a worker's cache."""

_HINT = re.compile(r"[ -~\u0080-\U0010ffff]{1,256}")
_TOKEN_ID_LIMIT: Final = 2**32


class Endpoint(enum.Enum):
    """The endpoints a prompt can come in by; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it was asked.

    `include_usage` is what the caller wants to see on a stream, not what the worker is asked for. `session` is the
    body's placement hint (`prompt_cache_key`, else `session_id`). `partition` is `vllm_xargs.cache_partition`, which
    is not the caller's to choose. `batch` means `source` is only the first of several prompts. `body` is the decoded
    body, byte for byte.
    """

    endpoint: Endpoint
    model: str
    source: PromptSource
    stream: bool
    include_usage: bool
    body: bytes
    batch: bool = False
    max_tokens: int | None = None
    cache_salt: str | None = None
    user: str | None = None
    session: str | None = None
    partition: str | None = None

    @property
    def raw(self) -> dict[str, msgspec.Raw]:
        """The top level with every value as the bytes it came in; made anew on each use."""
        return _RAW.decode(self.body)


class Usage(msgspec.Struct, frozen=True):
    """What a worker reports of one request, in tokens; `cached_tokens` is None where it says nothing about it."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


class _Key:
    """A top-level key as it stood in the body; compared by identity, so that a second one of a name is not lost."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def _make_key(_kind: type, name: Any) -> _Key:
    return _Key(name)


_BODY: Final = msgspec.json.Decoder(dict[_Key, Any], dec_hook=_make_key)
_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_NULL: Final = msgspec.Raw(b"null")


def parse_call(endpoint: Endpoint, body: bytes) -> Call:
    """Read `body`; raises `InvalidRequest` (400), with the field at fault as `param`, for anything that cannot be."""
    fields = _top_level(body)
    for value in fields.values():
        if type(value) in _CONTAINERS:
            _check_depth(value, 2)
    source, batch = _chat_source(fields) if endpoint is Endpoint.CHAT else _completion_source(fields)
    stream_options = _optional(fields, "stream_options", dict) or {}
    max_tokens = _optional(fields, "max_completion_tokens", int)
    return Call(
        endpoint=endpoint,
        model=_model(fields),
        source=source,
        batch=batch,
        stream=_optional(fields, "stream", bool) or False,
        include_usage=_optional(stream_options, "include_usage", bool) or False,
        max_tokens=max_tokens if max_tokens is not None else _optional(fields, "max_tokens", int),
        cache_salt=_optional(fields, "cache_salt", str),
        user=_optional(fields, "user", str),
        session=_hint(fields, "prompt_cache_key") or _hint(fields, "session_id"),
        partition=_optional(_optional(fields, "vllm_xargs", dict) or {}, PARTITION, str),
        body=body,
    )


def forward_body(call: Call, *, salt: str | None, ask_usage: bool, partition: str | None = None) -> bytes:
    """The body for the worker: the caller's own bytes when nothing differs, else the top level re-encoded.

    `salt` becomes `cache_salt` (None removes one), `ask_usage` turns `stream_options.include_usage` on, `partition`
    becomes `vllm_xargs.cache_partition`. Nothing else changes, and every other value keeps its bytes and its place.
    """
    salted = salt == call.cache_salt
    asked = not ask_usage or call.include_usage
    placed = partition is None and call.partition is None
    if salted and asked and placed:
        return call.body
    fields = call.raw
    if not salted:
        _put(fields, "cache_salt", salt)
    if not asked:
        options = msgspec.json.decode(fields["stream_options"]) if "stream_options" in fields else None
        _put(fields, "stream_options", {**(options or {}), "include_usage": True})
    if not placed:
        given = fields.get("vllm_xargs", _NULL)
        extra = {} if given == _NULL else _RAW.decode(given)
        _put(extra, PARTITION, partition)
        _put(fields, "vllm_xargs", extra or None)
    return _encode(fields)


def read_usage(answer: bytes) -> Usage | None:
    """The usage block of a JSON answer or of one stream event's JSON; None where there is none to read."""
    try:
        usage = _ANSWER.decode(answer).usage
    except (msgspec.DecodeError, RecursionError):
        return None
    if usage is None:
        return None
    details = usage.prompt_tokens_details
    return Usage(usage.prompt_tokens, usage.completion_tokens, details.cached_tokens if details else None)


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _UsageBlock(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Answer(msgspec.Struct):
    usage: _UsageBlock | None = None


_ANSWER: Final = msgspec.json.Decoder(_Answer)
_CONTAINERS: Final = frozenset((dict, list))


def _top_level(body: bytes) -> dict[str, Json]:
    try:
        pairs = _BODY.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not a JSON object: {error}.") from None
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid UTF-8.") from None
    fields = {key.name: value for key, value in pairs.items()}
    if len(fields) != len(pairs):
        _refuse_duplicates(pairs)
    return fields


def _refuse_duplicates(pairs: Mapping[_Key, Json]) -> None:
    seen: set[str] = set()
    for key in pairs:
        if key.name in seen and key.name in DECIDED:
            raise InvalidRequest(f"`{key.name}` is given more than once.", param=key.name)
        seen.add(key.name)


def _check_depth(value: Json, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep()
    for child in value.values() if type(value) is dict else value:
        if type(child) in _CONTAINERS:
            _check_depth(child, depth + 1)


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The body is nested deeper than {MAX_DEPTH} levels.")


_SORTS: Final = {dict: "an object", list: "an array", bool: "true or false", int: "a whole number", str: "a string"}


def _optional(fields: Mapping[str, Json], name: str, kind: type) -> Any:
    """The field if it is there and not null; exactly of `kind`, whole numbers not below zero."""
    value = fields.get(name)
    if value is None or (type(value) is kind and (type(value) is not int or value >= 0)):
        return value
    raise InvalidRequest(f"`{name}` must be {_SORTS[kind]}.", param=name)


def _model(fields: Mapping[str, Json]) -> str:
    model = _optional(fields, "model", str)
    if not model:
        raise InvalidRequest("`model` is missing: name the model to ask.", param="model")
    return str(model)


def _hint(fields: Mapping[str, Json], name: str) -> str | None:
    hint = _optional(fields, name, str)
    if hint and not _HINT.fullmatch(hint):
        raise InvalidRequest(f"`{name}` must be 1 to 256 printable characters.", param=name)
    return hint or None


def _chat_source(fields: Mapping[str, Json]) -> tuple[PromptSource, bool]:
    messages = _optional(fields, "messages", list)
    if not messages:
        raise InvalidRequest("`messages` must be an array with at least one message.", param="messages")
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]")
    tools = _optional(fields, "tools", list)
    if tools and not all(type(tool) is dict for tool in tools):
        raise InvalidRequest("`tools` must be an array of objects.", param="tools")
    asks = _optional(fields, "add_generation_prompt", bool)
    arguments = dict(_optional(fields, "chat_template_kwargs", dict) or {})
    if (documents := _optional(fields, "documents", list)) is not None:
        arguments["documents"] = documents
    source = PromptSource(
        messages=messages, tools=tools or None, add_generation_prompt=asks is not False, template_arguments=arguments
    )
    return source, False


def _check_message(message: Json, place: str) -> None:
    if type(message) is not dict or type(message.get("role")) is not str:
        raise InvalidRequest(f"`{place}` must be an object with a `role`.", param=place)
    content = message.get("content")
    if content is None or type(content) is str:
        return
    if type(content) is not list or not all(type(part) in (dict, str) for part in content):
        raise InvalidRequest(f"`{place}.content` must be a string, null or an array of parts.", param=place)


def _completion_source(fields: Mapping[str, Json]) -> tuple[PromptSource, bool]:
    prompt = fields.get("prompt")
    if type(prompt) is str:
        return PromptSource(prompt=prompt), False
    if type(prompt) is not list or not prompt:
        raise InvalidRequest("`prompt` must be a string, an array of token ids, or an array of these.", param="prompt")
    first = prompt[0]
    if type(first) is int:
        return PromptSource(prompt=_token_ids(prompt)), False
    if any(type(item) is not type(first) for item in prompt):
        raise InvalidRequest("`prompt` mixes strings and token ids.", param="prompt")
    return PromptSource(prompt=first if type(first) is str else _token_ids(first)), len(prompt) > 1


def _token_ids(ids: Json) -> Sequence[int]:
    if type(ids) is list and ids and set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) < _TOKEN_ID_LIMIT:
        return ids
    raise InvalidRequest("`prompt` holds something that is neither a string nor an array of token ids.", param="prompt")


def _put(fields: dict[str, msgspec.Raw], name: str, value: Json) -> None:
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = msgspec.Raw(_encode(value))
