"""One answer's text and its end: which token or string stops it, and what of it may be shown."""

from __future__ import annotations

from typing import NamedTuple

from backends.detokenise import Decoder, Detokeniser
from backends.stops import StopStrings


class Piece(NamedTuple):
    """What one more token did: text to show, why the answer ended (None: it goes on), and at what."""

    text: str
    finish_reason: str | None
    stop_reason: str | int | None


class Answer:
    """Follows one answer token by token. Without a decoder there is no text, and no stop string is ever found.

    A stop string that is complete within the first `min_tokens` tokens is none. With `shows_stop` the string or token
    that ends the answer is part of its text.
    """

    __slots__ = (
        "_end_ids",
        "_hidden_ids",
        "_left_tokens",
        "_shows_stop",
        "_stop_ids",
        "_stops",
        "_text",
        "_unstopped",
        "_watches",
    )

    def __init__(
        self,
        decoder: Decoder | None,
        *,
        end_ids: frozenset[int],
        stops: tuple[str, ...],
        max_tokens: int,
        stop_ids: tuple[int, ...] = (),
        hidden_ids: frozenset[int] = frozenset(),
        min_tokens: int = 0,
        shows_stop: bool = False,
    ) -> None:
        self._text = Detokeniser(decoder) if decoder is not None else None
        self._stops = StopStrings(stops, shown=shows_stop)
        self._watches = bool(stops)
        self._shows_stop = shows_stop
        self._unstopped = min_tokens
        self._end_ids = end_ids
        self._stop_ids = stop_ids
        self._hidden_ids = hidden_ids
        self._left_tokens = max_tokens

    def push(self, token_id: int) -> Piece:
        """Add a token. An end, stop or hidden token has no text; a stop string ends the text before itself."""
        self._left_tokens -= 1
        self._unstopped -= 1
        if token_id in self._end_ids:
            return Piece(self._last_text(token_id), "stop", None)
        if token_id in self._stop_ids:
            return Piece(self._last_text(token_id), "stop", token_id)
        text = self._text_of(token_id)
        if self._watches:
            text, stop = self._stops.push(text, may_stop=self._unstopped < 0)
            if stop is not None:
                return Piece(text, "stop", stop)
        if self._left_tokens <= 0:
            return Piece(text + self._stops.flush(), "length", None)
        return Piece(text, None, None)

    def _last_text(self, token_id: int) -> str:
        """What is left to show when a token ends the answer."""
        shown = self._stops.push(self._text_of(token_id), may_stop=False).text if self._shows_stop else ""
        return shown + self._stops.flush()

    def _text_of(self, token_id: int) -> str:
        return "" if self._text is None or token_id in self._hidden_ids else self._text.push(token_id)
