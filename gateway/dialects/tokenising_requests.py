"""What /tokenize, /detokenize and count_tokens ask for: nothing that a cache helps with, so nothing to place by."""

from __future__ import annotations

from gateway.body_fields import Asked, Fields, check_messages, optional
from gateway.errors import InvalidRequest
from router.core import PromptSource

NOTHING_TO_PLACE_BY = PromptSource(prompt=())
"""No block of it is full, so nobody is ever believed to hold any."""


def read_tokenise(fields: Fields) -> Asked:
    """`messages`, or one text as `prompt` (case D-06)."""
    if fields.get("messages") is not None:
        check_messages(fields)
    elif type(fields.get("prompt")) is not str:
        raise InvalidRequest("`prompt` must be a string, or send `messages`.", param="prompt")
    return Asked(NOTHING_TO_PLACE_BY)


def read_detokenise(fields: Fields) -> Asked:
    """`tokens`."""
    tokens = optional(fields, "tokens", list)
    if tokens is None or not all(type(token) is int and token >= 0 for token in tokens):
        raise InvalidRequest("`tokens` must be an array of token ids.", param="tokens")
    return Asked(NOTHING_TO_PLACE_BY)


def read_count(fields: Fields) -> Asked:
    """Anthropic's `messages`, to be counted."""
    check_messages(fields)
    return Asked(NOTHING_TO_PLACE_BY)
