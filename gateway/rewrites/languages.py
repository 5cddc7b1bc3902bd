"""The languages whose comments and blank lines can be taken out, and whether indentation means something in them."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name

_MARKUP: Final = re.compile(r"</[\w>]|/>")
_QUOTES: Final = re.compile(
    r"\\['\"]|\$\w*\$|`[^`\n]*(?:--|#|/\*)[^`\n]*`|\[[^\]\n]*(?:--|/\*)[^\]\n]*\]|[\w)]\s*--[\d(.@]"
)
_CONTINUED: Final = re.compile(r"\\\r")
_HERE_DOCUMENT: Final = re.compile(r"<<<[^\n]{1,200}\r")


class Language(NamedTuple):
    """A language by its name for Pygments. Where `unsure` occurs, the lexer may take content for a comment: text
    between JSX tags, strings, names and sums of other SQL that the standard does not have, lines that a CRLF ends and
    Pygments goes on with, or the other way round.
    """

    lexer: str
    indentation_has_meaning: bool = False
    unsure: re.Pattern[str] | None = None


LANGUAGES: Final[dict[str, Language]] = {
    "python": Language("python", indentation_has_meaning=True),
    "javascript": Language("javascript", unsure=_MARKUP),
    "typescript": Language("typescript", unsure=_MARKUP),
    "java": Language("java"),
    "c": Language("c", unsure=_CONTINUED),
    "cpp": Language("cpp", unsure=_CONTINUED),
    "csharp": Language("csharp"),
    "go": Language("go"),
    "rust": Language("rust"),
    "swift": Language("swift"),
    "php": Language("php", unsure=_HERE_DOCUMENT),
    "scala": Language("scala", indentation_has_meaning=True),
    "sql": Language("sql", unsure=_QUOTES),
    "lua": Language("lua"),
}
"""Languages without here-documents. In Scala 3 indentation may delimit blocks.

# Not done: Ruby, Perl and shells, whose here-documents a lexer that starts in the middle of a file can miss; Kotlin,
# whose lexer reads nested comments otherwise than the compiler does.
"""


@cache
def lexer_of(language: str) -> Lexer:
    """The lexer; made once, for it takes milliseconds."""
    return get_lexer_by_name(LANGUAGES[language].lexer)
