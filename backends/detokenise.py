"""From token ids to text, a little at a time, never showing half a character."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

HALF = "\ufffd"
"""What decoders put in place of bytes that are no (or not yet a) character."""

MOST_HELD_TOKENS = 32
"""A run of this many tokens without a clean end is no text: it is shown as it is. A character has at most 4 bytes."""


class Decoder(Protocol):
    """The part of a tokeniser that turns ids into text."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens; bytes that form no character become U+FFFD."""


class Detokeniser:
    """The text of one growing list of tokens.

    Decoding token by token is wrong (a character may span tokens, and some decoders treat the first token apart), and
    decoding everything each time is quadratic. So a short window is decoded with and without its newest tokens, and
    moves on when it ends cleanly. An unfinished character at the very end never becomes text.
    """

    __slots__ = ("_decoder", "_known_text", "_known_tokens", "_window")

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._window: list[int] = []
        self._known_tokens = 0
        self._known_text = ""

    def push(self, token_id: int) -> str:
        """Add a token; return the text that became certain, maybe none."""
        self._window.append(token_id)
        text = self._decoder.decode(self._window)
        unfinished = text.endswith(HALF) and len(self._window) < MOST_HELD_TOKENS
        certain = text[: len(text) - unfinished]
        new = certain[len(self._known_text) :]
        if unfinished:
            self._known_text = max(self._known_text, certain, key=len)
        else:
            self._move_on()
        return new

    def _move_on(self) -> None:
        # The newest tokens stay as context, so that the next token is never decoded as if it were the first.
        self._window = self._window[self._known_tokens :]
        self._known_tokens = len(self._window)
        self._known_text = self._decoder.decode(self._window)
