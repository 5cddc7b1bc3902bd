"""Finds the clocks of a system text: a cue, then a clock. Only what both grammars agree on is folded.

A *strong* cue names the clock (`current date`, `today's date`) and may stand within a sentence; a *weak* one (`today
is`, `now:`, `timestamp=`, `conversation started:`) must start a line, a sentence or a bracket. The clock must follow
its cue directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from router.normalise import context
from router.normalise.clock_run import Run, parse_clock, parse_year
from router.normalise.clock_words import kind_of
from router.normalise.cues import ASIAN, ASIAN_HINT, WORD, Cue, may_end_cue, may_hold_cue, read_asian_cue, read_cue

MAX_CUE = 160
"""How far before a number its cue may start, in code points."""
MAX_CUE_WORDS = 12
MAX_NEAR = 48
MAX_CORE = 96
_LAST_WORD = re.compile(r"([^A-Za-z]*)([A-Za-z']+)")
_LABEL_MARKS = frozenset(":>*]=")
_NOTE_OR_PLACE = re.compile(r"[)\]]|\s(?:in|at|for)\s")

_COLON = r"""(?:\(\))?["'`*_\])>]{0,4}\s?(?:\bvalue=|[:：=,،]|->|[-–—](?=\s))?"""
_OPENERS = r"""["'`*_]{0,3}(?:</?\w{1,8}>)?(?P<space>\s*)(?:[-*]\s)?["'`*_(\[（]{0,4}(?:<\w{1,8}>)?"""
_NOTE = r"(?:\s?[(\[（][^()\[\]（）\n]{1,40}[)\]）])?"
_PLACE = r"(?:\s(?:in|for|at|for the)\s[A-Z][\w/+-]*(?:\s[A-Z][\w/+-]*){0,3})?(?:\s(?:is|ist|est|es|è|é)(?=\s))?"
_CONNECTORS = (re.compile(_COLON + _OPENERS), re.compile(_NOTE + _PLACE + _COLON + _OPENERS))
_ASIAN_CONNECTOR = re.compile(
    rf"{_NOTE}[ \u3000*_]*(?:[:：=,，、]|은|는|이|가|은요)?[ \u3000]*(?:は|是|为|為|คือ)?[*_:：]{{0,3}}(?P<space>\s*)"
    r"[「\"'(（]?"
)
_REST_OF_LABEL = re.compile(r"""["'`\]}>*/\s,;)]*(?:</?\w+>)?[ \t]*(?:-->)?[ \t]*(?:\Z|\n)""")
_LABEL_LINE_ENDS = (":", "：", ">", "*", "`", "]")


class Clock(NamedTuple):
    """A clock to fold: `text[start:end]`."""

    start: int
    end: int


class _Found(NamedTuple):
    """A cue, the clock after it, and how the two are joined (`cue_end` to `start`)."""

    cue: Cue
    cue_end: int
    start: int
    run: Run


def find_clock(text: str, hit: int) -> Clock | None:
    """The clock with a cue that `hit` (the position of a digit or a name in it) belongs to, or None."""
    if _no_cue_before(text[max(0, hit - MAX_NEAR) : hit]):
        return None
    line = text.rfind("\n", max(0, hit - MAX_CUE), hit) + 1
    window = max(line, hit - MAX_CUE)
    if line and window == line and hit - line <= 60:
        window = _line_above(text, line)
    for found in _candidates(text, window, hit):
        if _accepts(text, found):
            return Clock(found.start, found.run.end)
    return None


def _no_cue_before(near: str) -> bool:
    """A look at the last word before a number, which rules out most: neither cue nor part of a clock, nor a note."""
    if not near.isascii():
        return ASIAN_HINT.search(near) is None and not may_hold_cue(near)
    last = _LAST_WORD.match(near[::-1])
    if last is None or last.end() == len(near):
        return False
    if "\n" in last[1] and not _may_head(near, len(near) - last.end(1)):
        return True
    if _NOTE_OR_PLACE.search(near):
        return False
    word = last[2][::-1]
    plain = word.islower() or word[1:].islower()
    return plain and not may_end_cue(word) and kind_of(word.lower(), "9") is None


def _may_head(near: str, end: int) -> bool:
    """Whether the line above, whose last word ends at `end`, can be a heading or a label."""
    if not _LABEL_MARKS.isdisjoint(near[end:]):
        return True
    line = near.rfind("\n", 0, end) + 1
    return not line or near[line : line + 1] in {"#", "<", "[", "*"}


def _line_above(text: str, line: int) -> int:
    """The start of the nearest line above that is not blank, if it is short, like a heading or a label."""
    head = text[max(0, line - 90) : line].rstrip("\n \t")
    if line - 90 > 0 and "\n" not in head:
        return line
    return max(0, line - 90) + head.rfind("\n") + 1


def _candidates(text: str, window: int, hit: int) -> Iterator[_Found]:
    before = text[window:hit]
    if may_hold_cue(before[-MAX_CORE:]):
        yield from _spaced(text, window, hit)
    if not before.isascii() and ASIAN_HINT.search(before):
        yield from _asian(text, window, hit)


def _spaced(text: str, window: int, hit: int) -> Iterator[_Found]:
    words = list(WORD.finditer(text, window, hit))
    for count in range(len(words), max(0, len(words) - MAX_CUE_WORDS), -1):
        word = words[count - 1]
        if may_end_cue(word[0]) and (found := _joined(text, word.end(), hit, _CONNECTORS)):
            cue = read_cue(text, words[:count])
            if cue is not None:
                yield _Found(cue, word.end(), *found)


def _asian(text: str, window: int, hit: int) -> Iterator[_Found]:
    for match in ASIAN.finditer(text, window, hit):
        if found := _joined(text, match.end(), hit, (_ASIAN_CONNECTOR,)):
            yield _Found(read_asian_cue(match), match.end(), *found)


def _joined(text: str, cue_end: int, hit: int, connectors: tuple[re.Pattern[str], ...]) -> tuple[int, Run] | None:
    """Where the clock that a connector joins to a cue's end starts, and the clock."""
    for connector in connectors:
        match = connector.match(text, cue_end)
        if match is None or match.end() > hit or not _may_break(text, cue_end, match):
            continue
        run = parse_clock(text, match.end()) or parse_year(text, match.end())
        if run is not None and run.end > hit:
            return match.end(), run
    return None


def _may_break(text: str, cue_end: int, connector: re.Match[str]) -> bool:
    """A clock may stand on the next line only under a heading or a label."""
    breaks = connector["space"].count("\n")
    if not breaks:
        return True
    line = text[context.line_start(text, cue_end) : connector.start("space")].strip()
    return breaks <= 2 and (line.startswith(("#", "<", "[")) or line.endswith(_LABEL_LINE_ENDS))


def _accepts(text: str, found: _Found) -> bool:
    """Whether cue, clock and place agree that this is the clock of the request."""
    cue, run = found.cue, found.run
    if not _shows_what_is_wanted(cue, run):
        return False
    explicit = text[found.cue_end : found.start].strip(" \t\"'`*_([（") or cue.says_is
    if not (explicit or run.has_full_date or cue.strong):
        return False
    if not _stands_well(text, found):
        return False
    quoted_key = text[cue.start - 1 : cue.start] in {'"', "'", "`"} and text[found.cue_end] == text[cue.start - 1]
    start = cue.start - 1 if cue.start and quoted_key else cue.start
    return not context.in_quotes(text, start) and not context.in_example(text, start, run.end)


def _shows_what_is_wanted(cue: Cue, run: Run) -> bool:
    if run.slots == {"year"}:
        return cue.names_year
    if cue.wants == "date":
        return run.has_date
    if cue.wants == "full_date":
        return run.has_full_date
    return cue.wants != "date_and_time" or (run.has_full_date and run.has_time)


def _stands_well(text: str, found: _Found) -> bool:
    cue = found.cue
    first_line = context.is_first_line(text, cue.start)
    if cue.first_line:
        bare = not text[context.line_start(text, cue.start) : cue.start].strip("*_#-<[({\"' ")
        at_head = first_line and (found.run.has_time or "weekday" in found.run.slots)
        return bare and (at_head or context.in_environment(text, cue.start))
    if cue.is_stamp and not first_line and not _is_lone_label(text, found):
        return False
    if context.at_boundary(text, cue.start):
        return context.is_quiet(text, cue.start)
    return (cue.strong or (cue.goes_on and cue.says_is and found.run.has_full_date)) and context.is_quiet(
        text, cue.start
    )


def _is_lone_label(text: str, found: _Found) -> bool:
    """A timestamp counts where it has a line to itself: within a line of a log it is data."""
    prefix = text[context.line_start(text, found.cue.start) : found.cue.start]
    return not prefix.strip("{<[(\"'*_`#!- ") and _REST_OF_LABEL.match(text, found.run.end) is not None
