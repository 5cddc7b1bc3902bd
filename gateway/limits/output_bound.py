"""Whether a request asks for a longer answer than its tenant may have, in whichever words engines listen to."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from gateway.wire import OUTPUT_FIELDS, Call
from router.core import Json

LLAMA_FIELD: Final = "n_predict"
"""llama.cpp puts it before every other word, and takes what is below zero for without end."""

_CHATS_OTHER: Final = "max_completion_tokens"


class LongerOutput(NamedTuple):
    """By which field it was asked for, and what: a number, or in words that it is none."""

    field: str
    asked: int | str


def longer_output(call: Call, bound_tokens: int) -> LongerOutput | None:
    """What goes beyond the bound; None where nothing does."""
    names = call.names or ()
    if call.max_tokens is not None and call.max_tokens > bound_tokens:
        other = _CHATS_OTHER in names and call.max_tokens == _value(call, _CHATS_OTHER)
        return LongerOutput(_CHATS_OTHER if other else OUTPUT_FIELDS.get(call.endpoint, "max_tokens"), call.max_tokens)
    if LLAMA_FIELD in names:
        asked = _value(call, LLAMA_FIELD)
        if asked is not None and not (type(asked) is int and 0 <= asked <= bound_tokens):
            return LongerOutput(LLAMA_FIELD, asked if type(asked) is int else "what is no whole number")
    return None


def _value(call: Call, name: str) -> Json:
    return msgspec.json.decode(call.raw[name])
