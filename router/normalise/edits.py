"""Edits of one text: applying them, and finding out where in the original text each of them stands."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

MAX_SPANS_PER_RULE = 64
"""More folds than this of one rule in one text are reported as one span that covers them all."""


class Edit(NamedTuple):
    """Replace `text[start:end]` by `replacement`, in the name of `rule`."""

    start: int
    end: int
    replacement: str
    rule: str


class Span(NamedTuple):
    """One fold, in code points of the original text."""

    rule: str
    start: int
    end: int


def apply(text: str, edits: Sequence[Edit]) -> str:
    """`text` after `edits`, which are sorted and do not overlap."""
    pieces: list[str] = []
    position = 0
    for start, end, replacement, _ in edits:
        pieces += (text[position:start], replacement)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)


class Layers:
    """A text and the layers of edits it went through, so that late edits can be told in original positions."""

    __slots__ = ("_layers", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._layers: list[Sequence[Edit]] = []

    def add(self, edits: Sequence[Edit]) -> None:
        """Apply one more layer of sorted edits, whose positions are those of the text as it is now."""
        if edits:
            self.text = apply(self.text, edits)
            self._layers.append(edits)

    def spans(self) -> list[Span]:
        """Every edit of every layer in positions of the original text, sorted and bounded per rule."""
        spans: list[Span] = []
        maps: list[_Map] = []
        for edits in self._layers:
            for rule, start, end in _told(edits):
                for back in reversed(maps):
                    start, end = back.origin(start, is_end=False), back.origin(end, is_end=True)
                spans.append(Span(rule, start, max(start, end)))
            if edits is not self._layers[-1]:
                maps.append(_Map(edits))
        return spans if len(self._layers) < 2 else bounded(spans)


def _told(edits: Sequence[Edit]) -> list[Span]:
    """The edits of a layer as spans; a long layer of one rule (line ends, mostly) is one span without counting."""
    if len(edits) > MAX_SPANS_PER_RULE and edits[0].rule == edits[-1].rule:
        return [Span(edits[0].rule, edits[0].start, edits[-1].end)]
    return bounded([Span(edit.rule, edit.start, edit.end) for edit in edits])


class _Map:
    """Positions after a layer of edits → positions before it."""

    __slots__ = ("_edits", "_starts")

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits = edits
        self._starts: list[int] = []
        shift = 0
        for start, end, replacement, _ in edits:
            self._starts.append(start + shift)
            shift += len(replacement) - (end - start)

    def origin(self, position: int, *, is_end: bool) -> int:
        """Where `position` was; inside a replacement, the edge of what was replaced."""
        index = bisect_right(self._starts, position) - 1
        if index >= 0 and is_end and self._starts[index] == position:
            index -= 1
        if index < 0:
            return position
        edit = self._edits[index]
        after = self._starts[index] + len(edit.replacement)
        if position < after:
            return edit.end if is_end else edit.start
        return edit.end + position - after


def bounded(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans; a rule with more than `MAX_SPANS_PER_RULE` of them is told as one covering span."""
    kept: list[Span] = []
    for rule, group in groupby(sorted(spans), key=lambda span: span.rule):
        same = list(group)
        if len(same) > MAX_SPANS_PER_RULE:
            same = [Span(rule, same[0].start, max(span.end for span in same))]
        kept += same
    return sorted(kept, key=lambda span: (span.start, span.end, span.rule))
