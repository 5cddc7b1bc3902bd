"""One pass over a system text that stops only where a volatile value can stand, and asks the rules that know such."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from router.normalise.clock_tokens import LETTERS
from router.normalise.clocks import find_clock
from router.normalise.edits import Edit
from router.normalise.labels import find_counter, find_id, find_path_part, has_separator, value_start
from router.normalise.names import MONTHS
from router.normalise.rules import FoldRules

MAX_TOKEN = 64
"""How far before a digit the mark (colon, equals sign, slash) of its label or path is looked for, in code points."""
MAX_STOPS = 1500
MAX_VALUES = 64
MAX_MONTH = 16
MAX_SEPARATOR = 8

SPARSE_CHARACTERS = 100
"""Where digits are further apart than this on average, finding each by itself is faster than a search by `re`."""

_DIGIT_MARKS = bytes(byte in b"0123456789" for byte in range(256))
"""Translates the bytes of a text to 1 for digits and 0 for all others."""
_WORD = re.compile(rf"{LETTERS}+")
_MONTHS = MONTHS | {"tháng"}
_YEAR_LABELS = ("year is ", "year: ")
_TODAY_IS = re.compile(r"oday is (?=[A-Z][a-z]+day\b)")


def _anchors(digit: str, letter: str, units: str) -> re.Pattern[str]:
    """Where a value can stand. All of it hangs on one leading class of digits, which `re` skips to quickly.

    The group `shape` is there where the number has the shape of a date, a time or an epoch, `month` where it is only
    a small number before a word, `tail` where it is one after a word that may be a month.
    """
    return re.compile(
        rf"""{digit}(?:
          (?<=[A-Za-z].)[\w-]
        | (?<![0-9A-Za-z_].)(?:
            {digit}{{0,3}}+(?P<shape>)(?:
                [:：]{digit}{digit}(?:[:：]{digit}{digit})?
              | (?:[-/]|\.[ ]?)\u200f?{digit}{{1,2}}(?:[-/]|\.[ ]?)\u200f?{digit}+
                (?:[T ]{digit}+:{digit}+(?::{digit}+)?)?
              | -(?:W|{digit}{{3}})
              | {digit}{{4}}
              | [-/](?=[^\W\d_]{{3}})
              | \s?(?:[hH](?![A-Za-z])|[AaPp]\.?[mM]\b|[Uu]hr\b|uur\b{units})
              | \.{digit}{digit}\b
              | (?:st|nd|rd|th|er|º)?[.,]?[ \u00a0-](?:de[ ]|of[ ]|the[ ])?(?P<month>)(?={letter}))
          | (?<=[^0-9][:=$€#].) | (?<=[:=s][ ].) | (?<=[:=][ ][$€].)
          | (?<=[-_/.].){digit}{{0,15}}[A-Za-z]
          | (?P<tail>(?<=[yhltrbgpvcnN][ ].)|(?<=[yhltrbgpvcnN][.][ ].)|(?<=une[ ].))
        ))""",
        re.VERBOSE,
    )


_ASCII = _anchors("[0-9]", "[A-Za-z]{3}", "")
_ANY = _anchors(
    "[0-9٠-٩۰-۹०-९০-৯๐-๙０-９〇零一二三四五六七八九十]", r"[^\W\d_]", "|年|月|日|时|時|点|點|년|월|일|시|giờ|ч\\b|น"
)


def volatile_values(text: str, rules: FoldRules) -> list[Edit]:
    """Edits of the rules `clock`, `request_id`, `session_path` and `counters`, sorted.

    The work is bounded: behind the first MAX_STOPS numbers or MAX_VALUES edits nothing more is looked for, since a
    text that is full of them is data.
    """
    edits: list[Edit] = []
    end = 0
    for match in islice(_stops(text), MAX_STOPS):
        if len(edits) >= MAX_VALUES:
            break
        if match.start() >= end:
            for edit in _volatile(text, match, rules):
                edits.append(edit)
                end = edit.end
    return edits


def _stops(text: str) -> Iterator[re.Match[str]]:
    """Digits that may belong to a volatile value, and weekdays that are all the clock there is, in order."""
    stops = _ascii_stops(text) if text.isascii() else _ANY.finditer(text)
    if "oday is " not in text:
        return stops
    return iter(sorted([*stops, *_TODAY_IS.finditer(text)], key=re.Match.end))


def _ascii_stops(text: str) -> Iterator[re.Match[str]]:
    """`_ASCII.finditer(text)`, at a fifth of its cost where digits are few: prose has hardly any."""
    marks = text.encode("ascii").translate(_DIGIT_MARKS)
    if marks.count(1) * SPARSE_CHARACTERS > len(text):
        return _ASCII.finditer(text)
    return _matches_at(text, marks)


def _matches_at(text: str, marks: bytes) -> Iterator[re.Match[str]]:
    place = marks.find(1)
    while place >= 0:
        match = _ASCII.match(text, place)
        if match is None:
            place = marks.find(1, place + 1)
        else:
            yield match
            place = marks.find(1, match.end())


def _volatile(text: str, match: re.Match[str], rules: FoldRules) -> list[Edit]:
    hit = match.start()
    if match.re is _TODAY_IS:
        hit = match.end()
        return _clock(text, hit) if "clock" in rules else []
    if "clock" in rules and _is_clock_like(text, match):
        found = _clock(text, hit)
        if found:
            return found
    return _labelled(text, hit, rules)


def _is_clock_like(text: str, match: re.Match[str]) -> bool:
    """Whether the number has the shape of a clock, or stands before or behind the name of a month."""
    before = text[max(0, match.start() - MAX_MONTH) : match.start()].lower()
    if match["month"] is not None:
        word = _WORD.match(text, match.end())
        # A year that ends its sentence looks like a day before a month, too: `2025. Answer …`.
        return (word is not None and word[0].lower() in _MONTHS) or before.endswith(_YEAR_LABELS)
    if match["tail"] is not None:
        return _WORD.findall(before)[-1] in _MONTHS
    return match["shape"] is not None or before.endswith(_YEAR_LABELS)


def _clock(text: str, hit: int) -> list[Edit]:
    clock = find_clock(text, hit)
    return [Edit(clock.start, clock.end, "{when}", "clock")] if clock else []


def _labelled(text: str, hit: int, rules: FoldRules) -> list[Edit]:
    near = text[max(0, hit - MAX_TOKEN) : hit]
    if ("/" in near or "\\" in near) and "session_path" in rules and (part := find_path_part(text, hit)):
        return [part]
    start = value_start(text, hit)
    if not has_separator(text[max(0, start - MAX_SEPARATOR) : start]):
        return []
    if "request_id" in rules and (label := find_id(text, hit, start)):
        return [label]
    return find_counter(text, hit) if "counters" in rules else []
