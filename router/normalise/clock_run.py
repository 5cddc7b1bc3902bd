"""The grammar of a written clock: reads one from a position and tells where it ends.

A clock is a run of tokens, each of which fills one slot (date, month, day, year, weekday, time, day period, zone, …)
at most once, so that a second time of day, a list of dates or an ordinary number after the clock is not read as part
of it. Small words and punctuation are read over when a token follows and are else left alone. A run counts only
with a real date or time in it, and with a year that a clock of today could show: role play in 1944 is not a clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from router.normalise.clock_numbers import is_date, is_time, plausible_numeral, plausible_year
from router.normalise.clock_tokens import BETWEEN, TOKEN
from router.normalise.clock_words import MAX_WORD, kind_of
from router.normalise.names import MONTHS

MAX_TOKENS = 24
_UNITS = {"年": "year", "년": "year", "月": "month", "월": "month", "分": "minute", "분": "minute"}
_UNITS |= dict.fromkeys("日号號일", "day") | dict.fromkeys("时時点點시", "hour") | dict.fromkeys("秒초", "second")
_TAGS = {"ngày": "day", "tháng": "month", "năm": "year"}
_GLUED_AFTER = re.compile(r"[.:/-]\d")
_AGAIN = frozenset("(（[/|=")
_YEAR_AFTER = re.compile(r",?\s\d{4}(?![\d:-]|\.\d)")
_RANGE_AFTER = re.compile(r"\s?(?:-|–|—|~|〜|to|bis|until|à)\s?\d")


class Run(NamedTuple):
    """A clock: where it ends (exclusive), and which slots it fills."""

    end: int
    slots: frozenset[str]

    @property
    def has_date(self) -> bool:
        """Whether the clock says a day (or a month or week), not only a time."""
        return not self.slots.isdisjoint({"date", "week", "month", "weekday", "epoch"})

    @property
    def has_full_date(self) -> bool:
        """Whether the clock says year, month and day."""
        return "date" in self.slots or {"month", "day", "year"} <= self.slots

    @property
    def has_time(self) -> bool:
        """Whether the clock says a time of day."""
        return "time" in self.slots


def parse_clock(text: str, position: int) -> Run | None:
    """The clock that starts at `position` of `text`, or None."""
    reader = _Reader(text, position)
    reader.read()
    return reader.run()


class _Reader:
    """State of one reading: `end` moves only when a token was taken for good."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self._position = self._end = position
        self._slots: set[str] = set()
        self._previous = "start"
        self._waiting: list[str] = []

    def read(self) -> None:
        """Take tokens until one does not fit."""
        for _ in range(MAX_TOKENS):
            start = self._position
            if self._previous != "start":
                start = BETWEEN.match(self._text, start).end()  # type: ignore[union-attr]  # it matches nothing too
            token = TOKEN.match(self._text, start)
            if token is None or not self._take(token):
                return
            self._position = token.end()

    def run(self) -> Run | None:
        """The clock that was read, when it is one."""
        slots, text, end = self._slots, self._text, self._end
        if "hour" in slots and (slots & {"minute", "period"}):
            slots.add("time")
        by_name = "month" in slots and not slots.isdisjoint({"day", "year"})
        if not by_name and slots.isdisjoint({"date", "week", "time", "epoch", "hour", "weekday"}):
            return None
        if by_name and "year" not in slots and _YEAR_AFTER.match(text, end):
            return None
        if _GLUED_AFTER.match(text, end) or _RANGE_AFTER.match(text, end):
            return None
        after = text[end : end + 1]
        glued = after.isascii() and (after.isalnum() or after == "_") and text[end - 1].isalnum()
        return None if glued else Run(end, frozenset(slots))

    def _take(self, token: re.Match[str]) -> bool:
        kind = token.lastgroup or ""
        handler = _HANDLERS.get(kind)
        return handler is not None and handler(self, token)

    def _fill(self, token: re.Match[str], *slots: str) -> bool:
        """Take the token when all `slots` are free; what waited for it is then part of the clock too."""
        if not self._slots.isdisjoint(slots):
            return False
        self._slots.update(slots, self._waiting)
        self._waiting.clear()
        self._end, self._previous = token.end(), slots[0]
        return True

    def _wait(self, slot: str) -> bool:
        """Read over a token that is part of the clock only if another follows."""
        if slot in self._slots or slot in self._waiting or len(self._waiting) > 7:
            return False
        self._waiting.append(slot)
        self._previous = slot
        return True

    def _told_again(self, token: re.Match[str]) -> bool:
        """Whether a bracket or a slash comes first: the same moment in another form or zone."""
        return not _AGAIN.isdisjoint(self._text[self._end : token.start()])

    def _free(self, *slots: str) -> bool:
        return self._slots.isdisjoint(slots)

    def compact(self, token: re.Match[str]) -> bool:
        """20251103, 20251103T140509, 20251103140509."""
        if not plausible_year(int(token[0][:4])):
            return False
        return self._fill(token, "date", "time") if len(token[0]) > 8 else self._fill(token, "date")

    def epoch(self, token: re.Match[str]) -> bool:
        """Seconds, milliseconds, microseconds or nanoseconds since 1970, the first with a fraction perhaps."""
        return (self._free("date", "time", "month") or self._told_again(token)) and self._fill(token, "epoch")

    def named(self, token: re.Match[str]) -> bool:
        """03-Nov-25, 03/Nov/2025, 2025-Nov-03."""
        name = re.sub(r"[\d\-/.]", "", token[0]).lower()
        years = [int(n) for n in re.findall(r"\d{4}", token[0])]
        fits = name in MONTHS and all(map(plausible_year, years)) and self._free("month", "day", "year")
        return fits and self._fill(token, "date")

    def date(self, token: re.Match[str]) -> bool:
        """Numbers with dashes, slashes or dots; 14.05.09 may be a date or a time and fills what is free."""
        first, second, third = token["first"], token["second"], token["third"]
        if is_date(first, second, third, token["by"]) and self._free("date", "month", "day", "year"):
            return self._fill(token, "date")
        if self._told_again(token) and is_date(first, second, third, token["by"]):
            return self._fill(token, "second_date")
        return token["by"] == "." and is_time(first, second, third) and self._fill(token, "time")

    def time(self, token: re.Match[str]) -> bool:
        """14:05, 14:05:09.123, 14 h 05, 14 Uhr."""
        numbers = [int(number) for number in re.findall(r"\d+", token[0])][:3]
        if numbers[0] > 24 or any(number > 60 for number in numbers[1:]):
            return False
        return self._fill(token, "time") or (self._told_again(token) and self._fill(token, "second_time"))

    def half(self, token: re.Match[str]) -> bool:
        """2 PM, 2.05 p.m."""
        return int(re.split(r"\D", token[0])[0]) < 13 and self._fill(token, "time", "period")

    def dotted(self, token: re.Match[str]) -> bool:
        """14.05 is a time only next to a word for it, a day period, or a zone."""
        after = self._text[token.end() : token.end() + 8].strip(" .").lower().partition(" ")[0]
        named = kind_of(after, "") in {"period", "zone"} or after in {"uhr", "น"}
        return (named or self._previous == "link") and not self._waiting_number() and self._fill(token, "time")

    def unit(self, token: re.Match[str]) -> bool:
        """2025年, 11月, 14時, 五分."""
        slot = _UNITS[token["unit_name"]]
        if slot == "year" and "era" not in self._waiting and not plausible_numeral(token["number_of"]):
            return False
        return (slot in {"hour", "minute", "second"} or self._free("date")) and self._fill(token, slot)

    def tagged(self, token: re.Match[str]) -> bool:
        """Vietnamese: ngày 3 tháng 11 năm 2025."""
        slot = _TAGS[token["tag"].lower()]
        return self._free("date") and self._fill(token, slot)

    def number(self, token: re.Match[str]) -> bool:
        """A day or a year: next to a month's name only."""
        value = int(re.sub(r"\D", "", token[0]))
        is_year = token[0][0] in "'’" or (len(token[0]) == 4 and (plausible_year(value) or "era" in self._waiting))
        is_day = not is_year and 1 <= value <= 31
        if "month" not in self._slots:
            return (is_day or is_year) and self._free("date") and self._wait("year" if is_year else "day")
        if is_day and self._previous in {"month", "link"} and "day" not in self._slots:
            return self._fill(token, "day")
        return is_year and "year" not in self._slots and self._fill(token, "year")

    def word(self, token: re.Match[str]) -> bool:
        """A name, or a small word between."""
        if len(token[0]) > MAX_WORD:
            return False
        word = token[0].lower().replace("’", "'").replace("\u0307", "")
        kind = kind_of(word, self._text[token.end() : token.end() + 16])
        if kind in {"link", "era"}:
            return self._link("era" if kind == "era" else "link")
        if kind == "period":
            return self.period(token)
        if kind == "month":
            return self._month(token)
        if kind == "zone":
            return self.zone(token)
        return kind is not None and self._fill(token, kind)

    def _month(self, token: re.Match[str]) -> bool:
        numbers = [slot for slot in self._waiting if slot in {"day", "year"}]
        beside = bool(numbers) or _NUMBER_NEXT.match(self._text, token.end()) is not None
        return beside and self._free("date", "month") and self._fill(token, "month")

    def _link(self, slot: str) -> bool:
        if self._waiting.count(slot) > 5:
            return False
        self._waiting.append(slot)
        self._previous = slot
        return True

    def _waiting_number(self) -> bool:
        return not {"day", "year"}.isdisjoint(self._waiting)

    def period(self, token: re.Match[str]) -> bool:
        """PM, 下午, Uhr abends: next to a time, before it or after it."""
        if self._slots.isdisjoint({"time", "hour"}):
            return self._wait("period")
        return self._previous != "zone" and self._fill(token, "period")

    def _may_have_offset(self, token: re.Match[str]) -> bool:
        """09:00-12:00 is a span of time; 09:00:30-05:00 and 2025-11-03T09:00-05:00 are clocks with an offset."""
        offset_hours = int(token[0][1:3])
        spaced = self._text[token.start() - 1] == " "
        return offset_hours <= 12 and (spaced or "date" in self._slots or self._text[max(0, token.start() - 6)] == ":")

    def zone(self, token: re.Match[str]) -> bool:
        """A zone's name or offset; a name and an offset may both stand there."""
        if self._slots.isdisjoint({"time", "hour", "date", "day"}):
            return self._wait("zone")
        if token[0][0] in "-−" and not self._may_have_offset(token):
            return False
        slot = "zone" if "zone" not in self._slots else "second_zone"
        return self._fill(token, slot)


_Handler = Callable[[_Reader, re.Match[str]], bool]
_YEAR_ALONE = re.compile(r"\d{4}(?![\w-])(?!\.\d)")
_NUMBER_NEXT = re.compile(r"[., \u00a0\u202f]*(?:[^\W\d_]{1,3}\.?\s)?['’]?\d")


def _filling(*slots: str) -> _Handler:
    return lambda reader, token: reader._fill(token, *slots)


_HANDLERS: dict[str, _Handler] = {
    "compact": _Reader.compact,
    "epoch": _Reader.epoch,
    "week": _filling("week"),
    "ordinal": _filling("date"),
    "named": _Reader.named,
    "third": _Reader.date,
    "date": _Reader.date,
    "time": _Reader.time,
    "hours": _Reader.time,
    "half": _Reader.half,
    "dotted": _Reader.dotted,
    "unit": _Reader.unit,
    "tagged": _Reader.tagged,
    "zone": _Reader.zone,
    "monotonic": _filling("monotonic"),
    "number": _Reader.number,
    "asian": lambda reader, token: _asian(reader, token),
    "vietnamese_day": _filling("weekday"),
    "word": _Reader.word,
}


def _asian(reader: _Reader, token: re.Match[str]) -> bool:
    if token["asian_day"]:
        return reader._fill(token, "weekday")
    if token["asian_period"]:
        return reader.period(token)
    return reader._link("era") if token["asian_era"] else reader._fill(token, "half")


def parse_year(text: str, position: int) -> Run | None:
    """A year alone, for the few cues that ask for one."""
    match = _YEAR_ALONE.match(text, position)
    return Run(match.end(), frozenset({"year"})) if match and plausible_year(int(match[0])) else None
