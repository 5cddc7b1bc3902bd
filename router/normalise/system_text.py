"""Folds one system text: layout first, then what a client wrote about itself, then volatile values."""

from __future__ import annotations

from typing import NamedTuple

from router.normalise import layout
from router.normalise.edits import Layers, Span
from router.normalise.labels import attribution_lines
from router.normalise.rules import FoldRules
from router.normalise.scan import volatile_values

_VOLATILE = frozenset({"clock", "request_id", "session_path", "counters"})


class FoldedText(NamedTuple):
    """The text as the key reads it, and where it differs, in code points of the original."""

    text: str
    spans: list[Span]


def fold_system_text(text: str, rules: FoldRules, *, is_whole: bool = True) -> FoldedText:
    """Fold a system text; one that is not whole (the head of a rendered prompt) keeps its first and last lines."""
    layers = Layers(text)
    for rule, edits_of in (
        ("line_ends", layout.line_ends),
        ("byte_order_mark", layout.byte_order_mark),
        ("unicode_nfc", layout.unicode_nfc),
        ("client_attribution", attribution_lines),
    ):
        if rule in rules:
            layers.add(edits_of(layers.text))
    if "trailing_space" in rules:
        layers.add(layout.trailing_space(layers.text, at_edges=is_whole))
    if "blank_lines" in rules:
        layers.add(layout.blank_lines(layers.text, at_edges=is_whole))
    if not rules.isdisjoint(_VOLATILE):
        layers.add(volatile_values(layers.text, rules))
    return FoldedText(layers.text, layers.spans())
