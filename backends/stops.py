"""Stop strings in a stream of text: found across any borders, and never shown, not even their beginnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Passed(NamedTuple):
    """Text that may be shown, and the stop string that ended the stream, if one did."""

    text: str
    stop: str | None


class StopStrings:
    """Watches text for any of some strings.

    Each is followed by its own automaton (Knuth-Morris-Pratt), so a character costs O(1) per stop string however
    often the text looks like one, and the longest beginning seen at the end is exactly what must be held back.
    The text ends before the stop string, or after it if it is `shown`.
    """

    __slots__ = ("_held", "_matchers", "_shown")

    def __init__(self, stops: Sequence[str], *, shown: bool = False) -> None:
        self._matchers = [_Matcher(stop) for stop in stops if stop]
        self._held = ""
        self._shown = shown

    def push(self, text: str, *, may_stop: bool = True) -> Passed:
        """Add text; return what is certain now, and the stop string when it is complete.

        Without `may_stop` one that is complete in this text is no stop.
        """
        if not self._matchers:
            return Passed(text, None)
        known = len(self._held)
        self._held += text
        for position in range(known, len(self._held)):
            stop = self._step(self._held[position])
            if stop is not None and may_stop:
                return Passed(self._held[: position + 1 - (0 if self._shown else len(stop))], stop)
        return Passed(self._release(max(matcher.begun for matcher in self._matchers)), None)

    def flush(self) -> str:
        """The text held back, when no more will come."""
        return self._release(0)

    def _step(self, character: str) -> str | None:
        complete = [matcher.stop for matcher in self._matchers if matcher.step(character)]
        return max(complete, key=len, default=None)

    def _release(self, keep: int) -> str:
        border = len(self._held) - keep
        certain, self._held = self._held[:border], self._held[border:]
        return certain


class _Matcher:
    """How many characters at the end of the text so far begin one stop string.

    `_fallback` has, for each prefix of the stop string that the text has come to, the length of its longest proper
    prefix that is also its suffix: a long stop string costs nothing until then, for anybody's `n` answers.
    """

    __slots__ = ("_fallback", "matched", "stop")

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._fallback = [0]

    @property
    def begun(self) -> int:
        """Characters at the end of the text that may still become the stop string."""
        return self.matched if self.matched < len(self.stop) else self._shorter(self.matched)

    def step(self, character: str) -> bool:
        """Whether the stop string is complete with this character."""
        if self.matched == len(self.stop):
            self.matched = self._shorter(self.matched)
        self.matched = self._after(self.matched, character)
        return self.matched == len(self.stop)

    def _shorter(self, length: int) -> int:
        while len(self._fallback) < length:
            self._fallback.append(self._after(self._fallback[-1], self.stop[len(self._fallback)]))
        return self._fallback[length - 1]

    def _after(self, matched: int, character: str) -> int:
        """How many characters of the stop string end with this one, when `matched` of them came before it."""
        while matched and self.stop[matched] != character:
            matched = self._shorter(matched)
        return matched + (self.stop[matched] == character)
