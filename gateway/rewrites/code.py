"""Code in a completion prompt without its comments, blank lines or indentation. Pure; Pygments tells what is what.

A prompt for code ends at the cursor, and the comment before it is often the very question. So from the last code
before the cursor on nothing changes. Where a prompt has marks for filling in the middle, only what stands before the
cursor is read: behind it a lexer would begin in the middle of a string as likely as not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from itertools import pairwise
from time import thread_time
from typing import Final, NamedTuple

from pygments.token import Comment, String, Token, _TokenType

from gateway.rewrites.languages import LANGUAGES, lexer_of
from router.normalise.edits import Edit

MOST_CHARACTERS: Final = 256 * 1024
"""Longer code is left as it is: a lexer takes about a second for a million characters."""

MOST_SECONDS: Final = 1.0
"""CPU time for one text, four times what the longest one takes: a lexer's rules look far ahead in what was made for it,
and begin again at every line."""

MOST_LINE_CHARACTERS: Final = 1000
_LONG_GAP: Final = re.compile(r"\s{201}")
"""A lexer takes seconds for one look at a longer line or gap, and nothing can stop it there; nobody writes them."""

_OTHER_LINE_END: Final = re.compile(r"\r(?!\n)|[\x85\u2028\u2029]")
"""Compilers end a comment with these, and lexers do not."""

_MARK: Final = re.compile(
    r"(?P<prefix><\|?fim[_-]prefix\|?>|▁?<PRE>|\[PREFIX\]|<｜fim▁begin｜>)"
    r"|<\|?fim[_-][a-z]+\|?>|▁?<(?:SUF|MID|EOT)>|\[(?:SUFFIX|MIDDLE)\]|<｜fim▁[a-z]+｜>"
)
"""What tells a model where the parts of a file are: StarCoder, Qwen, CodeLlama, Codestral, DeepSeek."""

_KEPT_COMMENTS: Final = (Comment.Hashbang, Comment.Preproc, Comment.PreprocFile)
_ORDERS: Final = re.compile(r"//go:|//export |// \+build|(?://|/\*)\s*#(?:include|cgo)|/\*[!+]|--\+|///\s*<")
"""Comments that compilers and databases obey: Go's directives and C, hints of MySQL and Oracle, references of
TypeScript."""

_BLANK: Final = re.compile(r"^[ \t]*\r?\n", re.MULTILINE)
_GAP: Final = re.compile(r"[ \t]*")
_INDENT: Final = re.compile(r"^[ \t]+(?=\S)", re.MULTILINE)


class _Stretch(NamedTuple):
    """A comment or a string: `text[start:end]`."""

    start: int
    end: int


class _Reading(NamedTuple):
    """What a lexer found: comments that may go, what must not be looked into, and where the last code ends."""

    comments: list[_Stretch]
    closed: list[_Stretch]
    code_end: int


def clean_code(text: str, language: str, rules: Set[str]) -> list[Edit]:
    """Edits of the rules `code_comments`, `code_blank_lines` and `code_indentation`, sorted and apart."""
    start, end = _before_the_cursor(text)
    if end - start > MOST_CHARACTERS:
        return []
    code = text[start:end]
    unsure = LANGUAGES[language].unsure
    if _is_unlikely(code) or (unsure is not None and unsure.search(code)):
        return []
    reading = _read(code, language)
    if reading is None:
        return []
    edits = _comments(code, reading) if "code_comments" in rules else []
    if "code_blank_lines" in rules:
        edits += _between(_BLANK, code, reading, edits, "code_blank_lines")
    if "code_indentation" in rules:
        edits += _between(_INDENT, code, reading, edits, "code_indentation")
    return [edit._replace(start=edit.start + start, end=edit.end + start) for edit in sorted(edits)]


def _before_the_cursor(text: str) -> tuple[int, int]:
    """The part of the prompt that a lexer may begin with."""
    first = _MARK.search(text)
    if first is None:
        return 0, len(text)
    if first["prefix"] is None:
        return 0, first.start()
    second = _MARK.search(text, first.end())
    return first.end(), second.start() if second else len(text)


def _is_unlikely(code: str) -> bool:
    if _LONG_GAP.search(code) is not None or _OTHER_LINE_END.search(code) is not None:
        return True
    return max(map(len, code.split("\n"))) > MOST_LINE_CHARACTERS


def _read(code: str, language: str) -> _Reading | None:
    """What the lexer says; None where it takes too long."""
    over_at = thread_time() + MOST_SECONDS
    comments: list[_Stretch] = []
    closed: list[_Stretch] = []
    code_end = 0
    directive = False
    for position, kind, value in lexer_of(language).get_tokens_unprocessed(code):
        if thread_time() > over_at:
            return None
        end = position + len(value)
        directive = _is(kind, Comment.Preproc) or directive
        if not directive and _is_comment(kind):
            _join(comments, _Stretch(position, end))
        elif value.strip():
            code_end = end
        if directive or _is_closed(kind):
            _join(closed, _Stretch(position, end))
        directive = directive and ("\n" not in value or code.endswith("\\\n", 0, end))
    return _Reading(comments, closed, code_end)


def _is_comment(kind: _TokenType) -> bool:
    """Whether it may go. A bare Comment is no comment but code that `#if 0` switches off; and in a directive a lexer
    takes the slashes of `"http://…"` for one.
    """
    return _is(kind, Comment) and kind != Comment and not any(_is(kind, kept) for kept in _KEPT_COMMENTS)


def _is_closed(kind: _TokenType) -> bool:
    """Whether spaces and line ends within it are content: strings, comments, pages around PHP, what is unreadable."""
    return any(_is(kind, closed) for closed in (String, Comment, Token.Error, Token.Other))


def _is(kind: _TokenType, of: _TokenType) -> bool:
    """Whether it is this kind of token, or one below it."""
    return kind[: len(of)] == of


def _join(stretches: list[_Stretch], new: _Stretch) -> None:
    if stretches and stretches[-1].end == new.start:
        new = _Stretch(stretches.pop().start, new.end)
    stretches.append(new)


def _comments(code: str, reading: _Reading) -> list[Edit]:
    before_the_end = (comment for comment in reading.comments if comment.end <= reading.code_end)
    return [_without(code, comment) for comment in before_the_end if not _ORDERS.match(code, comment.start)]


def _without(code: str, comment: _Stretch) -> Edit:
    """The comment's line goes with it if nothing else stands there; a comment within a line leaves what parts words."""
    start, end = comment.start, comment.start + len(code[comment.start : comment.end].rstrip("\r\n"))
    while start and code[start - 1] in " \t":
        start -= 1
    line_ends = re.compile(r"[ \t]*(?:\r?\n|\Z)").match(code, end)
    if line_ends is None:
        if "\n" not in code[start:end]:
            return Edit(start, end, " ", "code_comments")
        return Edit(start, _GAP.match(code, end).end(), "\n", "code_comments")  # type: ignore[union-attr]
    own_line = start == 0 or code[start - 1] == "\n"
    return Edit(start, line_ends.end() if own_line else end, "", "code_comments")


def _between(pattern: re.Pattern[str], code: str, reading: _Reading, before: list[Edit], rule: str) -> Iterator[Edit]:
    """Matches in what is neither string nor comment nor edited already, and stands before the last line of code."""
    last_line = code.rfind("\n", 0, reading.code_end) + 1
    shut = sorted([*reading.closed, *(_Stretch(edit.start, edit.end) for edit in before)])
    borders = [_Stretch(0, 0), *shut, _Stretch(last_line, last_line)]
    for left, right in pairwise(borders):
        for match in pattern.finditer(code, left.end, min(right.start, last_line)):
            if not code.endswith("\\\n", 0, match.start()):  # what a backslash goes on to ends with this line
                yield Edit(*match.span(), "", rule)
