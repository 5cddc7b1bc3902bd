"""What announces a clock: reads the phrase that ends where a clock begins, and says how far it may be trusted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from router.normalise.clock_tokens import LETTERS
from router.normalise.cue_words import BEGINNING, LINK, NOW, ORIGIN, SENTENCES, STAMP, TALK, TIME, TODAY, VERBS

WORD = re.compile(rf"{LETTERS}+(?:['’]{LETTERS}+)?")
_KNOWN = NOW | TIME | STAMP | ORIGIN | LINK | BEGINNING | TALK
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CORE = NOW | TIME | STAMP | BEGINNING | frozenset({"it", "es", "nous", "è", "as", "haben", "schreiben", "son", "est"})
_ASCII_WORD = re.compile("[a-z]+")
_QUICK_WORD = re.compile(rf"{LETTERS}+")
_CAMEL_CUE = re.compile(r"[a-z](?:Time|Date|Now|Stamp)|(?:now|current|today|time|date)[A-Z]")
_GAP = re.compile(r"[ \t\u00a0_\-/&+()*]{0,4}\Z")

_ASIAN_NOUN = r"(?:时间|日期|时刻|時間|時刻|日時|日付|年月日|날짜|시각|시간|일시)"
_ASIAN_AND = r"(?:和|与|與|及|と|・|및|와|과|/|、|\s)*"
ASIAN = re.compile(
    rf"""(?P<now>当前|目前|现在|现时|此时此刻|此刻|今天|今日|當前|現在|現時|本日|今|ただいま|현재|지금|오늘)
         (?:的|の|系统|系統|서버|UTC|GMT|\s)*(?P<noun>{_ASIAN_NOUN}?(?:{_ASIAN_AND}{_ASIAN_NOUN})*)
       | (?P<origin>系统|服务器|本地|北京|系統|伺服器|台北|システム|サーバー|시스템|서버)
         (?:当前|當前|の|\s)*{_ASIAN_NOUN}
       | (?P<talk>对话|会话|對話|會話|会話|セッション|대화|세션)\s?(?:开始|開始|시작)(?:时间|時間|日時|시간|시각)?
       | (?P<both>日期(?:和|与|與|及|/)?(?:时间|時間)|日時|날짜\s?(?:및|와)?\s?시간)
       | (?P<thai>(?:วันที่|วัน|เวลา|และ|\s)*(?:ปัจจุบัน|ขณะนี้|ตอนนี้|วันนี้)(?:เวลา|คือ|เป็น|\s)*)
       | (?P<stamp>时间戳|時間戳|タイムスタンプ|타임스탬프)""",
    re.VERBOSE,
)
"""The same grammar for scripts that write no spaces between words."""


ASIAN_HINT = re.compile(
    "当前|目前|现在|现时|此刻|此时|今|現|當前|ただ|현재|지금|오늘|系统|服务器|本地|本日|北京|系統|伺服|台北|システム|サーバ|시스템|서버"
    "|对话|会话|對話|會話|会話|セッ|대화|세션|日期|日時|날짜|ปัจจุบัน|ขณะนี้|ตอนนี้|วันนี้|时间戳|時間戳|タイムス|타임스"
)
"""A quick look whether `ASIAN` can match anything."""


class Cue(NamedTuple):
    """A phrase that starts at `start` and announces a clock.

    A strong one may stand within a sentence. `wants` says what the clock must show: `any`, `date`, `full_date`,
    `date_and_time`; a stamp is a label of its own, and `first_line` is one only in the first line of a text.
    `says_is` ones need no colon; one that `goes_on` (`and today is`) may stand within a sentence before a full date.
    """

    start: int
    strong: bool = False
    wants: str = "any"
    is_stamp: bool = False
    first_line: bool = False
    names_year: bool = False
    says_is: bool = False
    goes_on: bool = False


def may_hold_cue(text: str) -> bool:
    """A quick look whether `text` has a word that no cue can do without."""
    words = (_ASCII_WORD if text.isascii() else _QUICK_WORD).findall(text.lower())
    return not _CORE.isdisjoint(words) or _CAMEL_CUE.search(text) is not None


def may_end_cue(word: str) -> bool:
    """Whether a word can be the last one of a cue."""
    return _parts(word)[-1] in _KNOWN


def read_cue(text: str, words: Sequence[re.Match[str]]) -> Cue | None:
    """The cue that the last of `words` ends: all words before it that belong to the vocabulary, judged together."""
    parts: list[str] = []
    start = words[-1].end()
    for word in reversed(words):
        if parts and not _GAP.match(text, word.end(), start):
            break
        here = _parts(word[0])
        if not _KNOWN.issuperset(here):
            break
        parts[:0] = here
        start = word.start()
    cue = _judge(parts, start)
    names_it = not TIME.isdisjoint(parts) and not NOW.isdisjoint(parts)
    goes_on = parts[:1] in (["and"], ["und"], ["et"], ["y"])
    return cue and cue._replace(says_is=names_it or not VERBS.isdisjoint(parts), goes_on=goes_on)


def _parts(word: str) -> list[str]:
    """The lower-case words in `word`: `nowMs` and `currentDate` are two each."""
    lower = word.lower().replace("’", "'").replace("\u0307", "")
    if lower in _KNOWN or word.isupper() or word.islower():
        return [lower]
    return [part.lower() for part in _CAMEL.findall(word)] or [lower]


def _judge(parts: list[str], start: int) -> Cue | None:
    words = set(parts)
    nouns = words & TIME
    now = {word for word in words & NOW if _means_now(word, parts)}
    if now and nouns and not (nouns == {"data"} and now <= {"current", "present"}):
        mid_sentence = parts[0] not in TIME
        return Cue(
            start, strong=mid_sentence, is_stamp=False, names_year=bool(words & {"year", "jahr", "année", "año"})
        )
    if now and "as" in words:
        return Cue(start, wants="any")
    if now:
        return Cue(start, wants="date" if now <= TODAY else "any")
    if words & BEGINNING and words & TALK:
        return Cue(start, wants="date")
    if words & STAMP and not words - STAMP - LINK - TIME - ORIGIN:
        return Cue(start, is_stamp=True)
    return _judge_plain(parts, start, nouns)


def _judge_plain(parts: list[str], start: int, nouns: set[str]) -> Cue | None:
    """Phrases without a word for *now*."""
    if " ".join(parts) in SENTENCES:  # first: the German `den` is also the Czech word for day
        return Cue(start, wants="full_date")
    if nouns and not ORIGIN.isdisjoint(parts):
        return Cue(start)
    if len(nouns) > 1 or (nouns and parts[0] == "the" and parts[-1] == "is"):
        return Cue(start)
    if nouns:
        return Cue(start, first_line=True)
    if parts[:2] == ["as", "of"] and len(parts) == 2:
        return Cue(start, wants="date_and_time")
    return None


def _means_now(word: str, parts: list[str]) -> bool:
    """`Fecha actual` is the current date; an `actual date` in English is one that was not planned."""
    return word != "actual" or not TIME.isdisjoint(parts[: parts.index(word)])


def read_asian_cue(match: re.Match[str]) -> Cue:
    """What a match of `ASIAN` announces."""
    if match["now"]:
        day = match["now"] in {"今天", "今日", "本日", "오늘"}
        return Cue(match.start(), strong=bool(match["noun"]), wants="date" if day and not match["noun"] else "any")
    if match["thai"]:
        return Cue(match.start(), strong="เวลา" in match["thai"] or "วันที่" in match["thai"])
    return Cue(match.start(), is_stamp=bool(match["stamp"]), wants="date" if match["talk"] else "any")
