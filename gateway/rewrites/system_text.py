"""Rewrites of one system text: line ends, a client's line about itself, and where a line with a clock stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Final

from router.normalise.edits import Edit, Layers
from router.normalise.labels import attribution_lines
from router.normalise.scan import volatile_values

LONGEST_CLOCK_LINE: Final = 160
"""A longer line says more than the time, in code points."""

_FOREIGN_LINE_END: Final = re.compile(r"\r\n?")
_SENTENCE_END: Final = re.compile(r"[.!?。！？]\s+\S")
_CLOCK: Final = frozenset({"clock"})


def rewrite_system_text(text: str, rules: Set[str]) -> Layers:
    """The text and every edit; rules that are not about system text are passed over."""
    layers = Layers(text)
    if "line_ends" in rules:
        layers.add([Edit(*match.span(), "\n", "line_ends") for match in _FOREIGN_LINE_END.finditer(layers.text)])
    if "client_attribution" in rules:
        layers.add(attribution_lines(layers.text))
    if "clock_last" in rules:
        layers.add(clock_last(layers.text))
    return layers


def clock_last(text: str) -> list[Edit]:
    """Lines that only tell the time, taken out and put behind the rest, in their order. None when they stand there."""
    lines = _clock_lines(text)
    stable_end = len(text.rstrip())
    while lines and len(text[: lines[-1][1]].rstrip()) >= stable_end:
        stable_end = len(text[: lines.pop()[0]].rstrip())
    if not lines:
        return []
    moved = "\n".join(text[start:end].rstrip("\r\n") for start, end in lines)
    lead = "" if text.endswith("\n") else "\n"
    tail = "\n" if text.endswith("\n") else ""
    return [*(Edit(start, end, "", "clock_last") for start, end in lines),
            Edit(len(text), len(text), lead + moved + tail, "clock_last")]  # fmt: skip


def _clock_lines(text: str) -> list[tuple[int, int]]:
    """Where such lines start and end, their line ends included."""
    found: list[tuple[int, int]] = []
    for edit in volatile_values(text, _CLOCK):
        start = text.rfind("\n", 0, edit.start) + 1
        end = text.find("\n", edit.end) + 1 or len(text)
        line = text[start:end]
        if len(line) <= LONGEST_CLOCK_LINE and not _SENTENCE_END.search(line) and (start, end) not in found:
            found.append((start, end))
    return found
