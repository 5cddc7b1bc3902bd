"""The languages whose comments and blank lines can be taken out, and whether indentation means something in them."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name


class Language(NamedTuple):
    """A language by its name for Pygments."""

    lexer: str
    indentation_has_meaning: bool = False


LANGUAGES: Final[dict[str, Language]] = {
    "python": Language("python", indentation_has_meaning=True),
    "javascript": Language("javascript"),
    "typescript": Language("typescript"),
    "java": Language("java"),
    "c": Language("c"),
    "cpp": Language("cpp"),
    "csharp": Language("csharp"),
    "go": Language("go"),
    "rust": Language("rust"),
    "swift": Language("swift"),
    "php": Language("php"),
    "scala": Language("scala", indentation_has_meaning=True),
    "sql": Language("sql"),
    "lua": Language("lua"),
}
"""Languages without here-documents or significant line comments. In Scala 3 indentation may delimit blocks.

# Not done: Ruby, Perl and shells, whose here-documents a lexer that starts in the middle of a file can miss; Kotlin,
# whose lexer reads nested comments otherwise than the compiler does.
"""


@cache
def lexer_of(language: str) -> Lexer:
    """The lexer; made once, for it takes milliseconds."""
    return get_lexer_by_name(LANGUAGES[language].lexer)
