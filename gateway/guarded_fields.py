"""What a caller may write only where its tenant may: a place before others, and media by a name that all tenants share.

vLLM keeps media under the `uuid` that a part of a message brings, whoever brings it: with one and no picture a caller
is told of another's, with one and a picture it takes the other's place (docs.vllm.ai, "Stable UUIDs for Caching").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from gateway.errors import InvalidRequest
from gateway.wire import Call, Endpoint
from router.core import Json

PRIORITY: Final = "priority"
_USUAL: Final = (b"null", b"0")
_MEDIA_NAME: Final = "uuid"
_MESSAGES: Final = ("messages", "input")
_CONTENTS: Final = ("content", "output")
_AS_SENT: Final = frozenset((Endpoint.CHAT, Endpoint.EMBEDDINGS))
"""Endpoints whose messages the prompt's source has as they came."""


def check_guarded(call: Call, *, may_prioritise: bool, kept_apart: bool) -> None:
    """Raises `InvalidRequest` with the field at fault. `kept_apart`: others must not learn what this tenant asks."""
    if not may_prioritise and (call.names is None or PRIORITY in call.names):
        given = call.raw.get(PRIORITY)
        if given is not None and bytes(given) not in _USUAL:
            raise InvalidRequest("`priority` is not yours to choose; leave it out.", param=PRIORITY)
    if kept_apart and _may_name_media(call):
        place = next(_named_media(call), None)
        if place is not None:
            raise InvalidRequest(
                f"`{place}` names media in a store that all tenants share; leave it out and send them.", param=place
            )


def _may_name_media(call: Call) -> bool:
    """A glance that nearly all requests end with: no parts, or no such key, plain or with an escaped letter."""
    if call.endpoint in _AS_SENT:
        return any(type(message.get("content")) is list for message in call.source.messages or ())
    return b"uuid" in call.body or b"\\u00" in call.body


def _named_media(call: Call) -> Iterator[str]:
    fields = call.raw
    for name in _MESSAGES:
        messages: Json = msgspec.json.decode(fields[name]) if name in fields else None
        for index, message in enumerate(messages if type(messages) is list else ()):
            for content in _CONTENTS if type(message) is dict else ():
                yield from _named_parts(message.get(content), f"{name}[{index}].{content}")


def _named_parts(parts: Json, place: str) -> Iterator[str]:
    for index, part in enumerate(parts if type(parts) is list else ()):
        if type(part) is dict and part.get(_MEDIA_NAME) is not None:
            yield f"{place}[{index}].{_MEDIA_NAME}"
