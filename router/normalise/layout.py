"""The layout of a system text: line ends, byte order mark, canonical composition, spaces and lines that say nothing.

Each function looks first whether there is anything to do at all, with searches that run at memory speed, and gives
edits in positions of the text it was given.
"""

from __future__ import annotations

import re
import unicodedata

from router.normalise.edits import Edit

_BYTE_ORDER_MARK = "\ufeff"
_LINE_END = re.compile(r"\r\n?|[\x85\u2028\u2029]")
_MARKS = re.compile(rf"^{_BYTE_ORDER_MARK}+", re.MULTILINE)
_UNCOMPOSED = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]+")
_TRAILING_SPACE = re.compile(r"[ \t]+(?=\n)")
_BLANK_LINES = re.compile(r"(?<=\n\n)\n+")


def byte_order_mark(text: str) -> list[Edit]:
    """Marks at the start of a line (files are often joined) are dropped."""
    if text.isascii() or _BYTE_ORDER_MARK not in text:
        return []
    return [Edit(*match.span(), "", "byte_order_mark") for match in _MARKS.finditer(text)]


def line_ends(text: str) -> list[Edit]:
    """CRLF, CR, NEL, LINE SEPARATOR and PARAGRAPH SEPARATOR read as LF."""
    if "\r" not in text and (text.isascii() or not any(end in text for end in "\x85\u2028\u2029")):
        return []
    # Not done: one replacement without an edit per line, which would save 1 µs a line on a text of CRLF lines.
    return [Edit(*match.span(), "\n", "line_ends") for match in _LINE_END.finditer(text)]


def unicode_nfc(text: str) -> list[Edit]:
    """Canonically equal spellings (é as one code point or two, Hangul as syllables or jamo) read alike; never NFKC."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return []
    runs = ((match.start(), match[0]) for match in _UNCOMPOSED.finditer(text))
    composed = ((start, run, unicodedata.normalize("NFC", run)) for start, run in runs)
    return [_tightest(start, run, nfc) for start, run, nfc in composed if run != nfc]


def _tightest(start: int, before: str, after: str) -> Edit:
    """The edit that turns `before` into `after`, without what they share at both ends."""
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - head) if before[-1 - i] != after[-1 - i]), shorter - head)
    return Edit(start + head, start + len(before) - tail, after[head : len(after) - tail], "unicode_nfc")


def trailing_space(text: str, *, at_edges: bool = True) -> list[Edit]:
    """Spaces and tabs before a line end, and with `at_edges` before the end of the text, are dropped."""
    edits: list[Edit] = []
    if " \n" in text or "\t\n" in text:
        edits = [Edit(*match.span(), "", "trailing_space") for match in _TRAILING_SPACE.finditer(text)]
    end = len(text.rstrip(" \t")) if at_edges else len(text)
    if end < len(text):
        edits.append(Edit(end, len(text), "", "trailing_space"))
    return edits


def blank_lines(text: str, *, at_edges: bool = True) -> list[Edit]:
    """Several blank lines read as one; with `at_edges`, those at the start and the end of the text are dropped."""
    edits: list[Edit] = []
    first, last = 0, len(text)
    if at_edges:
        first, last = len(text) - len(text.lstrip("\n")), len(text.rstrip("\n"))
    if "\n\n\n" in text:
        inner = _BLANK_LINES.finditer(text, first, max(first, last))
        edits = [Edit(*match.span(), "", "blank_lines") for match in inner]
    if last < len(text) and last > first:
        edits.append(Edit(last, len(text), "", "blank_lines"))
    if first:
        edits.insert(0, Edit(0, first, "", "blank_lines"))
    return edits
