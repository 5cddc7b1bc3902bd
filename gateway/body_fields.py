"""A request's body as the fields of one JSON object, read strictly; a refusal names the field and what it must be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from gateway.errors import InvalidRequest
from gateway.json_bounds import MOST_NAMES, check_bounds
from router.core import Json, PromptSource

MAX_DEPTH: Final = 64
"""Deepest nesting of a request body, the outermost object being 1."""

RESERVED: Final = frozenset((
    "kv_transfer_params", "ec_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "lora_path",
    "lora", "rid", "request_id", "data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank", "id_slot",
))  # fmt: skip
"""Fields by which a router speaks to vLLM, SGLang and llama.cpp, and that no caller may write: they fetch blocks of
another request from another worker (whose it is nobody asks, and any address will do), ask for an adapter past the
check of models, give the request another's number, or choose the rank or slot that another is at work in."""

DECIDED: Final = frozenset((
    "model", "messages", "prompt", "stream", "stream_options", "cache_salt", "vllm_xargs", "tools", "max_tokens",
    "max_completion_tokens", "max_output_tokens", "user", "metadata", "session_id", "prompt_cache_key",
    "add_generation_prompt", "chat_template_kwargs", "documents", "system", "instructions", "input",
    "previous_response_id", "background", "priority", "n", "best_of", "n_predict",
)) | RESERVED  # fmt: skip
"""Keys the gateway decides on; a second one of the same name is refused, whatever its spelling."""

Fields = Mapping[str, Json]
"""The top level of a body, decoded."""


class Asked(NamedTuple):
    """What one endpoint's own fields ask for.

    `source` is the prompt as the worker's own template would see it; `batch` says that it is only the first of
    several. `user` is whom the caller names as its own user.
    """

    source: PromptSource
    batch: bool = False
    max_tokens: int | None = None
    user: str | None = None


class _Key:
    """A top-level key as it stood in the body; compared by identity, so that a second one of a name is not lost."""

    __slots__ = ("name",)

    def __init__(self, _kind: type, name: str) -> None:
        self.name = name


_BODY: Final = msgspec.json.Decoder(dict[_Key, Any], dec_hook=_Key)
_PARSED_FIRST_BYTES: Final = 256 * 1024
"""Up to here a body is parsed before its structure is counted, since parsing it, whatever it is, takes less."""

_CONTAINERS: Final = frozenset((dict, list))
_HINT: Final = re.compile(r"[ -~\u0080-\U0010ffff]{1,256}")
_TOKEN_IDS: Final = list[Annotated[int, msgspec.Meta(ge=0, lt=2**32)]]
_SORTS: Final = {dict: "an object", list: "an array", bool: "true or false", int: "a whole number", str: "a string"}


def read_fields(body: bytes) -> dict[str, Json]:
    """The top level of `body`; raises `InvalidRequest` for what is no object, too deep, or says a thing twice."""
    most_names = check_bounds(body) if len(body) > _PARSED_FIRST_BYTES else MOST_NAMES
    fields = _top_level(body)
    if len(body) <= _PARSED_FIRST_BYTES and len(body) - _text_characters(fields) > MOST_NAMES:
        check_bounds(body)
    if most_names > MAX_DEPTH:
        for value in fields.values():
            if type(value) in _CONTAINERS:
                _check_depth(value, 2)
    _refuse_reserved(fields, "")
    extra = fields.get("vllm_xargs")
    if type(extra) is dict:
        _refuse_reserved(extra, "vllm_xargs.")
    return fields


def _refuse_reserved(fields: Fields, place: str) -> None:
    if RESERVED.isdisjoint(fields):
        return
    for name in RESERVED.intersection(fields):
        if fields[name] is not None:
            raise InvalidRequest(f"`{place}{name}` is not yours to write; leave it out.", param=f"{place}{name}")


def _text_characters(fields: Fields) -> int:
    """How much of a body is plain text, where most of it is; each character took a byte at least."""
    messages, prompt = fields.get("messages"), fields.get("prompt")
    contents = [each.get("content") for each in messages if type(each) is dict] if type(messages) is list else []
    return sum(len(text) for text in (*contents, prompt) if type(text) is str)


def optional(fields: Fields, name: str, kind: type) -> Any:
    """The field if it is there and not null; exactly of `kind`, whole numbers not below zero."""
    value = fields.get(name)
    if value is None or (type(value) is kind and (type(value) is not int or value >= 0)):
        return value
    raise InvalidRequest(f"`{name}` must be {_SORTS[kind]}.", param=name)


def objects(fields: Fields, name: str) -> list[dict[str, Json]] | None:
    """A field that is an array of objects; None for an empty one, too."""
    items = optional(fields, name, list)
    if items and not all(type(item) is dict for item in items):
        raise InvalidRequest(f"`{name}` must be an array of objects.", param=name)
    return items or None


def required_text(fields: Fields, name: str, fix: str) -> str:
    """A string that must be there and not be empty; `fix` says what to do."""
    text = optional(fields, name, str)
    if not text:
        raise InvalidRequest(f"`{name}` is missing: {fix}.", param=name)
    return str(text)


def hint(fields: Fields, name: str) -> str | None:
    """A placement hint."""
    given = optional(fields, name, str)
    if given and not _HINT.fullmatch(given):
        raise InvalidRequest(f"`{name}` must be 1 to 256 printable characters.", param=name)
    return given or None


def check_messages(fields: Fields, name: str = "messages") -> list[dict[str, Json]]:
    """An array of at least one message: a role, and text, null or parts as its content."""
    messages: list[dict[str, Json]] | None = optional(fields, name, list)
    if not messages:
        raise InvalidRequest(f"`{name}` must be an array with at least one message.", param=name)
    for index, message in enumerate(messages):
        check_message(message, f"{name}[{index}]")
    return messages


def check_message(message: Json, place: str) -> None:
    """One message; `place` is what a refusal names."""
    if type(message) is not dict or type(message.get("role")) is not str:
        raise InvalidRequest(f"`{place}` must be an object with a `role`.", param=place)
    check_content(message.get("content"), f"{place}.content")


def check_content(content: Json, place: str) -> None:
    """A message's content: text, null, or an array of parts."""
    if content is None or type(content) is str:
        return
    if type(content) is not list or not all(type(part) in (dict, str) for part in content):
        raise InvalidRequest(f"`{place}` must be a string, null or an array of parts.", param=place)


def text_or_tokens(fields: Fields, name: str) -> tuple[str | Sequence[int], bool]:
    """A field that is text, token ids, or an array of either; of an array the first, and whether there are more."""
    prompt = fields.get(name)
    if type(prompt) is str:
        return prompt, False
    if type(prompt) is not list or not prompt:
        raise InvalidRequest(f"`{name}` must be a string, an array of token ids, or an array of these.", param=name)
    first = prompt[0]
    if type(first) is int:
        return _token_ids(prompt, name), False
    if any(type(item) is not type(first) for item in prompt):
        raise InvalidRequest(f"`{name}` mixes strings and token ids.", param=name)
    return (first if type(first) is str else _token_ids(first, name)), len(prompt) > 1


def _token_ids(ids: Json, name: str) -> Sequence[int]:
    try:
        checked: list[int] = msgspec.convert(ids, _TOKEN_IDS)
    except msgspec.ValidationError:
        checked = []
    if checked:
        return checked
    raise InvalidRequest(f"`{name}` holds something that is neither a string nor an array of token ids.", param=name)


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
    children = value.values() if type(value) is dict else value
    if _CONTAINERS.isdisjoint(map(type, children)):
        return
    for child in children:
        if type(child) in _CONTAINERS:
            _check_depth(child, depth + 1)


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The body is nested deeper than {MAX_DEPTH} levels.")
