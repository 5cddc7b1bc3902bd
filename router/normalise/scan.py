"""One pass over a system text that stops only where a volatile value can stand, and asks the rules that know such."""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.normalise.clocks import find_clock
from router.normalise.edits import Edit
from router.normalise.labels import find_counter, find_id, find_path_part
from router.normalise.names import MONTHS
from router.normalise.rules import FoldRules

MAX_TOKEN = 64
"""How far before a digit the mark (colon, equals sign, slash) of its label or path is looked for, in code points."""

_MONTHS_END = "ary rch ril May une uly ust ber Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec ept"
_BEFORE_DAY = "|".join(f"{end} " for end in _MONTHS_END.split())
_WORD = re.compile(r"[^\W\d_]+")
_TODAY_IS = re.compile(r"oday is (?=[A-Z][a-z]+day\b)")


def _anchors(digit: str, units: str) -> re.Pattern[str]:
    """Where a value can stand. All of it hangs on one leading class of digits, which `re` skips to quickly."""
    return re.compile(
        rf"""{digit}(?:
          (?P<clock>(?<!\w{digit})(?:
              {digit}?[:：]{digit}{digit}
            | {digit}{{0,3}}(?:[-/]|\.[ ]?){digit}{{1,2}}(?:[-/]|\.[ ]?){digit}
            | {digit}{{3}}-(?:W|{digit}{{3}})
            | {digit}{{7}}
            | {digit}{{3}}(?!\w)
            | {digit}?[-/](?=[^\W\d_]{{3}})
            | {digit}?(?:st|nd|rd|th|er|º)?[.,]?[ \u00a0-](?:de[ ]|of[ ]|the[ ])?(?P<month>)(?=[^\W\d_]{{3}})
            | {digit}?\.{digit}{digit}\b
            | {digit}{{0,3}}\s?(?:[hH]\b|[hH]{digit}|[AaPp]\.?[mM]\b|[Uu]hr\b|uur\b{units})
            | (?<=(?:{_BEFORE_DAY}).){digit}?\b))
        | (?<=[A-Za-z].)[\w-]{{3}}
        | (?<=[^\w.].){digit}{{5}}
        | (?<=[:=$€].) | (?<=[:=][ ].) | (?<=is[ ].)
        )""",
        re.VERBOSE,
    )


_ASCII = _anchors("[0-9]", "")
_ANY = _anchors("[0-9٠-٩۰-۹०-९০-৯๐-๙０-９〇零一二三四五六七八九十]", "|年|月|日|时|時|点|點|년|월|일|시|giờ|ч\\b|น")


def volatile_values(text: str, rules: FoldRules) -> list[Edit]:
    """Edits of the rules `clock`, `request_id`, `session_path` and `counters`, sorted."""
    edits: list[Edit] = []
    end = 0
    for match in _stops(text):
        if match.start() >= end:
            for edit in _volatile(text, match, rules):
                edits.append(edit)
                end = edit.end
    return edits


def _stops(text: str) -> Iterator[re.Match[str]]:
    """Digits that may belong to a volatile value, and weekdays that are all the clock there is, in order."""
    stops = (_ASCII if text.isascii() else _ANY).finditer(text)
    if "oday is " not in text:
        return stops
    return iter(sorted([*stops, *_TODAY_IS.finditer(text)], key=re.Match.end))


def _volatile(text: str, match: re.Match[str], rules: FoldRules) -> list[Edit]:
    hit = match.start()
    if match.re is _TODAY_IS:
        hit = match.end()
        return _clock(text, hit) if "clock" in rules else []
    if match["clock"] is not None and "clock" in rules and _is_month_day(text, match):
        found = _clock(text, hit)
        if found:
            return found
    return _labelled(text, hit, rules)


def _is_month_day(text: str, match: re.Match[str]) -> bool:
    """A small number before a word is a day only if the word is a month's name."""
    if match["month"] is None:
        return True
    word = _WORD.match(text, match.end())
    return word is not None and word[0].lower() in MONTHS


def _clock(text: str, hit: int) -> list[Edit]:
    clock = find_clock(text, hit)
    return [Edit(clock.start, clock.end, "{when}", "clock")] if clock else []


def _labelled(text: str, hit: int, rules: FoldRules) -> list[Edit]:
    near = text[max(0, hit - MAX_TOKEN) : hit]
    if ("/" in near or "\\" in near) and "session_path" in rules and (part := find_path_part(text, hit)):
        return [part]
    if not (":" in near or "=" in near or " is " in near or "：" in near or "#" in near):
        return []
    if "request_id" in rules and (label := find_id(text, hit)):
        return [label]
    return find_counter(text, hit) if "counters" in rules else []
